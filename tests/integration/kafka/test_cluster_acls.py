"""The ACLs of the cluster as a real broker tells them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from confluent_kafka.admin import ResourceType

from app.domain.authorization import AclBinding
from app.domain.errors import NotSentError
from app.kafka.acls import KafkaClusterAclSource
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster
from app.localdev.kafka import LocalKafka
from tests.testkit.accounts import granted
from tests.testkit.kafka import as_user, brokers_of
from tests.testkit.service import acl

ACLS = (
    acl("carol", "ALTER_CONFIGS"),
    acl("*", "ALL", "DENY", host="10.0.0.5"),
    acl("dave", "DESCRIBE_CONFIGS", prefixed=True),
    acl("carol", "READ", kind=ResourceType.TOPIC, name="not-the-cluster"),
)


@pytest.fixture
async def source(brokers: Brokers) -> AsyncIterator[KafkaClusterAclSource]:
    acls = KafkaClusterAclSource(brokers)
    yield acls
    await acls.close()


async def test_the_snapshot_holds_every_acl_on_the_cluster_in_kafka_s_words(
    broker: LocalKafka, source: KafkaClusterAclSource
):
    others = set((await source.cluster_acls(max_age_s=0.0)).bindings)
    with granted(broker, *ACLS):
        found = set((await source.cluster_acls(max_age_s=0.0)).bindings)
    assert found - others == {
        AclBinding("kafka-cluster", "LITERAL", "User:carol", "*", "ALTER_CONFIGS", "ALLOW"),
        AclBinding("kafka-cluster", "LITERAL", "User:*", "10.0.0.5", "ALL", "DENY"),
        AclBinding("kafka-cluster", "PREFIXED", "User:dave", "*", "DESCRIBE_CONFIGS", "ALLOW"),
    }


async def test_a_snapshot_has_an_age_and_is_cached_while_young(
    broker: LocalKafka, source: KafkaClusterAclSource
):
    before = datetime.now(UTC)
    first = await source.cluster_acls(max_age_s=0.0)
    with granted(broker, acl("late", "ALL")):
        again = await source.cluster_acls(max_age_s=60.0)
    assert again.bindings == first.bindings
    assert again.taken_at == first.taken_at
    assert before <= first.taken_at <= datetime.now(UTC)
    assert 0 <= first.age_s < again.age_s
    assert first.has_authorizer


async def test_an_error_names_the_acl_that_the_account_lacks(broker: LocalKafka):
    async with brokers_of(as_user(broker, "nobody")) as brokers:
        with pytest.raises(NotSentError, match="ALLOW DESCRIBE on Cluster kafka-cluster") as caught:
            await KafkaClusterAclSource(brokers).cluster_acls(max_age_s=10.0)
    assert caught.value.code == "acl-source-unreachable"


async def test_a_plain_broker_has_no_quota_callback(brokers: Brokers):
    cluster = KafkaCluster(brokers)
    assert await cluster.custom_callback() is None
    await cluster.close()


async def test_an_account_that_may_not_ask_for_the_callback_learns_nothing(broker: LocalKafka):
    async with brokers_of(as_user(broker, "nobody")) as brokers:
        assert await KafkaCluster(brokers).custom_callback() is None


async def test_the_broker_offers_both_quota_apis_and_tells_its_metadata_version(brokers: Brokers):
    versions = dict(await KafkaCluster(brokers).versions())
    assert (versions.pop("metadata_version") or 0) > 0
    assert versions == {"describe_api_version": 1, "alter_api_version": 1}
