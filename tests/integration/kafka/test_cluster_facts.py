"""What a real broker tells: quorum and barrier reads, ACLs, versions, an image of all quotas."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial

import pytest
from confluent_kafka.admin import NewTopic, ResourceType

from app.domain.authorization import AclBinding
from app.domain.errors import NotSentError
from app.kafka.acls import cluster_acls
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum
from app.localdev.kafka import LocalKafka
from app.localdev.kafka_admin import silent_admin
from app.service.ports.brokers import AclSnapshot, BarrierUnavailableError
from app.service.queries.resolve import QuotaImage
from app.service.runtime.tasks import Cache
from tests.testkit.accounts import granted
from tests.testkit.fake_ports import no_callback
from tests.testkit.kafka import (
    DEADLINE_S,
    as_user,
    barrier_of,
    brokers_of,
    entity,
    eventually,
    setting,
    store,
    unique,
    values_of,
)
from tests.testkit.patience import PATIENT
from tests.testkit.service import acl

TRIES = 50
LANES = 4


@pytest.fixture
async def nobody(broker: LocalKafka) -> AsyncIterator[Brokers]:
    """Connections of an account that has no right of its own."""
    async with brokers_of(as_user(broker, "nobody")) as connections:
        yield connections


async def test_a_read_behind_a_barrier_is_never_older_than_an_acknowledged_change(
    brokers: Brokers, quota_admin: KafkaClientQuotaAdmin
):
    barrier = barrier_of(brokers, quota_admin)
    broker_id = await quota_admin.preferred_broker()

    async def lane() -> list[tuple[float, float]]:
        of = entity(user=unique())
        seen = []
        for value in range(1, TRIES + 1):
            await store(quota_admin, setting(of, producer_byte_rate=value))
            read = await barrier.read([of], broker_id=broker_id, within_s=DEADLINE_S)
            assert read.quorum is not None
            seen.append((read.values[of]["producer_byte_rate"], float(value)))
        return seen

    lanes = await asyncio.gather(*(lane() for _ in range(LANES)))
    stale = [pair for seen in lanes for pair in seen if pair[0] != pair[1]]
    assert stale == []
    assert sum(map(len, lanes)) == 200


async def test_the_quorum_counts_what_was_changed(
    brokers: Brokers, quota_admin: KafkaClientQuotaAdmin
):
    quorum = KafkaMetadataQuorum(brokers)
    before = await quorum.quorum(broker_id=1)
    await store(quota_admin, setting(entity(user=unique()), producer_byte_rate=1))
    after = await quorum.quorum()
    assert after.leader_epoch == before.leader_epoch
    assert after.high_watermark > before.high_watermark

    async def is_published() -> bool:
        published = await quorum.published_offset(broker_id=1, timeout_s=DEADLINE_S)
        return published >= before.high_watermark

    await eventually(is_published, wanted=True)


async def test_an_account_that_may_not_describe_the_cluster_has_no_barrier(nobody: Brokers):
    with pytest.raises(BarrierUnavailableError, match="DESCRIBE on Cluster kafka-cluster"):
        await KafkaMetadataQuorum(nobody).quorum()


async def test_a_barrier_that_is_not_permitted_gives_values_that_are_not_verified(
    broker: LocalKafka, nobody: Brokers, quota_admin: KafkaClientQuotaAdmin
):
    with granted(broker, acl("nobody", "ALTER_CONFIGS")):
        barrier = barrier_of(nobody, quota_admin)
        read = await barrier.read([entity(user=unique())], broker_id=1)
    assert read.quorum is None


async def test_the_right_to_describe_the_cluster_is_enough(broker: LocalKafka, nobody: Brokers):
    with granted(broker, acl("nobody", "DESCRIBE")):
        assert (await KafkaMetadataQuorum(nobody).quorum()).leader_epoch > 0


ACLS = (
    acl("carol", "ALTER_CONFIGS"),
    acl("*", "ALL", "DENY", host="10.0.0.5"),
    acl("dave", "DESCRIBE_CONFIGS", prefixed=True),
    acl("carol", "READ", kind=ResourceType.TOPIC, name="not-the-cluster"),
)


@pytest.fixture
async def acls(brokers: Brokers) -> AsyncIterator[Cache[AclSnapshot]]:
    acls = Cache(partial(cluster_acls, brokers))
    yield acls
    await acls.close()


async def test_the_snapshot_holds_every_acl_on_the_cluster_in_kafka_s_words(
    broker: LocalKafka, acls: Cache[AclSnapshot]
):
    others = set((await acls.get(0.0))[0].bindings)
    with granted(broker, *ACLS):
        found = set((await acls.get(0.0))[0].bindings)
    assert found - others == {
        AclBinding("kafka-cluster", "LITERAL", "User:carol", "*", "ALTER_CONFIGS", "ALLOW"),
        AclBinding("kafka-cluster", "LITERAL", "User:*", "10.0.0.5", "ALL", "DENY"),
        AclBinding("kafka-cluster", "PREFIXED", "User:dave", "*", "DESCRIBE_CONFIGS", "ALLOW"),
    }


async def test_a_snapshot_has_an_age_and_is_cached_while_young(
    broker: LocalKafka, acls: Cache[AclSnapshot]
):
    first, young_s = await acls.get(0.0)
    with granted(broker, acl("late", "ALL")):
        again, older_s = await acls.get(60.0)
    assert again is first
    assert 0 <= young_s < older_s
    assert first.has_authorizer


async def test_an_error_names_the_acl_that_the_account_lacks(broker: LocalKafka):
    async with brokers_of(as_user(broker, "nobody")) as brokers:
        with pytest.raises(NotSentError, match="ALLOW DESCRIBE on Cluster kafka-cluster") as caught:
            await cluster_acls(brokers)
    assert caught.value.code == "acl-source-unreachable"


async def test_a_plain_broker_has_no_quota_callback(brokers: Brokers):
    cluster = KafkaCluster(brokers)
    assert (await cluster.callback_reports()).custom is None
    await cluster.close()


async def test_an_account_that_may_not_ask_for_the_callback_learns_nothing(broker: LocalKafka):
    async with brokers_of(as_user(broker, "nobody")) as brokers:
        assert (await KafkaCluster(brokers).callback_reports()).custom is None


async def test_leaders_are_those_of_the_topics_that_are_asked_for(
    broker: LocalKafka, brokers: Brokers
):
    name, cluster = unique("topic"), KafkaCluster(brokers)
    topics = [NewTopic(name, num_partitions=2), NewTopic(unique("topic"), num_partitions=1)]
    admin = silent_admin(broker.bootstrap_servers)
    for made in admin.create_topics(topics).values():
        made.result()

    async def leaders() -> object:
        found = await cluster.leaders(frozenset({name, "no-such-topic"}))
        return found.brokers, dict(found.leaders)

    await eventually(leaders, ((1,), {name: (1, 1)}))
    everything = await cluster.leaders(None)
    assert everything.leaders.keys() > {name}
    await cluster.close()


async def test_the_broker_offers_both_quota_apis_and_tells_its_metadata_version(brokers: Brokers):
    versions = dict(await KafkaCluster(brokers).versions())
    assert (versions.pop("metadata_version") or 0) > 0
    assert versions == {"describe_api_version": 1, "alter_api_version": 1}


async def test_an_image_of_age_zero_shows_what_the_broker_shows_now(
    quota_admin: KafkaClientQuotaAdmin,
):
    image = QuotaImage(quota_admin, no_callback, timeout_s=PATIENT.image_s)
    before = datetime.now(UTC)
    first = await image.image(max_age_ms=0)
    of = entity(user=unique())
    await store(quota_admin, setting(of, producer_byte_rate=1))
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 1.0})
    cached = await image.image(max_age_ms=60_000)
    assert cached is first
    assert of not in cached.quotas
    fresh = await image.image(max_age_ms=0)
    assert fresh.quotas[of] == {"producer_byte_rate": 1.0}
    assert before <= first.as_of <= fresh.as_of <= datetime.now(UTC)


async def test_what_has_not_changed_is_not_read_again(quota_admin: KafkaClientQuotaAdmin):
    of = entity(user=unique())
    await store(quota_admin, setting(of, producer_byte_rate=1))
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 1.0})
    image = QuotaImage(quota_admin, no_callback, timeout_s=PATIENT.image_s)

    async def the_same() -> object:
        first, second = [await image.image(max_age_ms=0) for _ in range(2)]
        return first.quotas is second.quotas

    await eventually(the_same, True)
    await store(quota_admin, setting(of, producer_byte_rate=2))
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 2.0})
    changes = (await image.image(max_age_ms=0)).changes
    assert changes is not None
    assert changes.changed[of] == {"producer_byte_rate": 2.0}
