"""Where a broker of the cluster listened one of another cluster may listen: it is refused."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.errors import NotSentError, WrongClusterError
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.pool import Purpose
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.faults.kafka.conftest import ALICE
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.fake_kafka.server import ALTER, fake_broker
from tests.testkit.kafka import DEADLINE_S, alter, brokers_of
from tests.testkit.proxy import KafkaProxy, kafka_proxy


@pytest.fixture
async def first() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as cluster:
        yield cluster


@pytest.fixture
async def other() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as cluster:
        cluster.cluster_id = "other"
        yield cluster


@pytest.fixture
async def name(first: FakeCluster) -> AsyncIterator[KafkaProxy]:
    """A name of the first cluster's broker, which may lead elsewhere."""
    async with kafka_proxy(first.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
async def brokers(name: KafkaProxy) -> AsyncIterator[Brokers]:
    async with brokers_of(name.bootstrap_servers) as connections:
        yield connections


async def test_a_new_connection_that_leads_to_another_cluster_is_not_used(
    name: KafkaProxy, brokers: Brokers, other: FakeCluster
):
    admin = KafkaClientQuotaAdmin(brokers)
    assert await admin.cluster_id() == "fake"
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    held = await brokers.lease(1, Purpose.ALTER, deadline)
    name.lead_to(other.bootstrap_servers)
    with pytest.raises(WrongClusterError, match="of the cluster 'other'"):
        await alter(admin, ALICE, broker_id=1)
    assert other.alterations == []
    held.release()
    assert not held.connection.idle


async def test_a_bootstrap_server_of_another_cluster_replaces_no_broker(
    first: FakeCluster, other: FakeCluster
):
    servers = f"{first.bootstrap_servers},{other.bootstrap_servers}"
    async with brokers_of(KafkaSettings(servers, cluster_id="fake")) as brokers:
        admin = KafkaClientQuotaAdmin(brokers)
        assert await admin.live_brokers() == [1]
        assert not brokers.another_answers()
        first.kill(1)
        await until(lambda: brokers.connections()["idle"] == 0)
        with pytest.raises(WrongClusterError):
            await admin.live_brokers()
        first.start(1)
        assert await admin.live_brokers() == [1]


async def test_a_cluster_that_is_only_away_is_not_taken_for_another(
    first: FakeCluster, brokers: Brokers
):
    admin = KafkaClientQuotaAdmin(brokers)
    assert await admin.live_brokers() == [1]
    first.kill(1)
    with pytest.raises(NotSentError) as raised:
        await admin.live_brokers()
    assert raised.value.code == "cluster-unreachable"
    assert await admin.cluster_id() == "fake"


async def test_nothing_is_sent_to_a_broker_that_has_replaced_another():
    async with fake_broker() as broker, brokers_of(broker.bootstrap_servers) as brokers:
        admin = KafkaClientQuotaAdmin(brokers)
        assert await admin.preferred_broker() == 7
        broker.node_id = 8
        broker.hang_up()
        await until(lambda: brokers.connections() == {"idle": 0, "busy": 0})
        with pytest.raises(NotSentError, match="Broker 7 is not among the live brokers"):
            await alter(admin, ALICE, broker_id=7)
        assert ALTER not in broker.received
        assert await admin.preferred_broker() == 8
