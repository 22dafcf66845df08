"""The fake cluster and a real broker, through the adapters: accounts, ACLs, brokers, the quorum."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import AdminClient

from app.domain.alterations import Outcome
from app.domain.authorization import AclBinding
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import BrokerError, NotSentError
from app.kafka.acls import KafkaClusterAclSource
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster, KafkaMetadataQuorum
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.ports.brokers import BarrierUnavailableError
from tests.testkit.accounts import exactly
from tests.testkit.fake_kafka.cluster import fake_cluster
from tests.testkit.kafka import (
    DEADLINE_S,
    PLAIN_USERS,
    admin_of,
    brokers_of,
    entity,
    eventually,
    setting,
    store,
    unique,
)
from tests.testkit.service import acl

NAME = unique("somebody")
MAY_ALTER = AclBinding("kafka-cluster", "LITERAL", f"User:{NAME}", "*", "ALTER_CONFIGS", "ALLOW")


@dataclass(frozen=True)
class Side:
    """One of the two: how it is reached in the clear, with SASL, and how it gets an ACL."""

    settings: KafkaSettings
    sasl: KafkaSettings
    let_a_caller_alter: Callable[[], None]


@pytest.fixture
async def fake_side() -> AsyncIterator[Side]:
    async with fake_cluster() as cluster:
        cluster.let_in(PLAIN_USERS)
        cluster.permit("User:nobody", ())
        yield Side(
            KafkaSettings(cluster.bootstrap_servers),
            as_user(cluster.bootstrap_servers, "nobody"),
            lambda: cluster.set_acls([MAY_ALTER]),
        )


@pytest.fixture
def real_side(broker: LocalKafka) -> Iterator[Side]:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})

    binding = acl(NAME, "ALTER_CONFIGS")

    def let_a_caller_alter() -> None:
        client.create_acls([binding])[binding].result(DEADLINE_S)

    yield Side(
        KafkaSettings(broker.bootstrap_servers),
        as_user(broker.sasl_bootstrap_servers, "nobody"),
        let_a_caller_alter,
    )
    same = exactly(binding)
    client.delete_acls([same])[same].result(DEADLINE_S)


def as_user(bootstrap_servers: str, user: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=user,
        sasl_password=PLAIN_USERS[user],
    )


@pytest.fixture(params=["fake_side", "real_side"])
def side(request: pytest.FixtureRequest) -> Side:
    chosen: Side = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
async def plain(side: Side) -> AsyncIterator[Brokers]:
    async with brokers_of(side.settings) as connections:
        yield connections


@pytest.fixture
async def nobody(side: Side) -> AsyncIterator[Brokers]:
    async with brokers_of(side.sasl) as connections:
        yield connections


async def test_an_account_without_rights_is_refused_everything(nobody: Brokers):
    admin = KafkaClientQuotaAdmin(nobody)
    with pytest.raises(BrokerError) as described:
        await admin.describe_client_quotas(ALL_ENTITIES)
    assert described.value.code == "service-account-not-authorized"
    of = entity(user=unique())
    for validate_only in (True, False):
        answer = await admin.alter_client_quotas(
            [setting(of, producer_byte_rate=1)], validate_only=validate_only
        )
        verdict = answer.verdicts[of]
        assert verdict.outcome is Outcome.REFUSED
        assert verdict.error is not None
        assert verdict.error.kafka_error == "CLUSTER_AUTHORIZATION_FAILED"
        assert verdict.error.message.startswith("Cluster authorization failed.")
    with pytest.raises(BarrierUnavailableError):
        await KafkaMetadataQuorum(nobody).quorum()
    with pytest.raises(NotSentError, match="DESCRIBE on Cluster"):
        await KafkaClusterAclSource(nobody).cluster_acls(max_age_s=1.0)


async def test_a_wrong_password_lets_nobody_in(side: Side):
    async with admin_of(replace(side.sasl, sasl_password="wrong")) as admin:
        with pytest.raises(NotSentError, match="SASL was refused with SASL_AUTHENTICATION_FAILED"):
            await admin.describe_client_quotas(ALL_ENTITIES)


async def test_the_acls_of_the_cluster_are_read(side: Side, plain: Brokers):
    source = KafkaClusterAclSource(plain)

    async def is_listed() -> object:
        return MAY_ALTER in (await source.cluster_acls(max_age_s=0)).bindings

    assert not await is_listed()
    side.let_a_caller_alter()
    await eventually(is_listed, wanted=True)


async def test_there_is_no_quota_callback(plain: Brokers):
    assert await KafkaCluster(plain).custom_callback() is None
    versions = await KafkaCluster(plain).quota_api_versions()
    assert (versions.describe, versions.alter) == (1, 1)


async def test_the_quorum_counts_every_record_and_a_broker_what_it_has_published(plain: Brokers):
    admin, quorum = KafkaClientQuotaAdmin(plain), KafkaMetadataQuorum(plain)
    before = await quorum.quorum(broker_id=1)
    users = [entity(user=unique()) for _ in range(3)]
    await store(admin, *(setting(each, producer_byte_rate=1) for each in users))
    after = await quorum.quorum(broker_id=1)
    assert after.leader_epoch == before.leader_epoch
    assert after.high_watermark >= before.high_watermark + 3

    async def caught_up() -> object:
        published = await quorum.published_offset(broker_id=1, timeout_s=DEADLINE_S)
        return published >= after.high_watermark - 1

    await eventually(caught_up, wanted=True)


async def test_a_change_is_seen_behind_a_barrier(plain: Brokers):
    admin = KafkaClientQuotaAdmin(plain)
    of = entity(user=unique())
    await store(admin, setting(of, producer_byte_rate=4711))
    barrier = Barrier(KafkaMetadataQuorum(plain), CurrentValues(admin))
    read = await barrier.read([of], broker_id=1)
    assert read.quorum is not None
    assert read.values == {of: {"producer_byte_rate": 4711.0}}
