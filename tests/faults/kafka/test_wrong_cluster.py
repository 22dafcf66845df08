"""Where a broker of the cluster listened one of another cluster may listen: it is refused."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.entities import ALL_ENTITIES
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
from tests.testkit.patience import PATIENT
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
    connections = Brokers(KafkaSettings(name.bootstrap_servers), patience=PATIENT)
    yield connections
    await connections.close()


def deadline() -> float:
    return asyncio.get_running_loop().time() + DEADLINE_S


async def test_a_new_connection_that_leads_to_another_cluster_is_not_used(
    name: KafkaProxy, brokers: Brokers, other: FakeCluster
):
    admin = KafkaClientQuotaAdmin(brokers)
    assert await admin.cluster_id() == "fake"
    held = await brokers.lease(1, Purpose.ALTER, deadline())
    name.lead_to(other.bootstrap_servers)
    with pytest.raises(WrongClusterError, match="of the cluster 'other'"):
        await alter(admin, ALICE, broker_id=1)
    assert other.alterations == []
    held.release()
    assert not held.connection.idle


async def test_nothing_is_asked_until_the_first_cluster_is_back(
    name: KafkaProxy,
    brokers: Brokers,
    first: FakeCluster,
    other: FakeCluster,
    caplog: pytest.LogCaptureFixture,
):
    admin = KafkaClientQuotaAdmin(brokers)
    watching = asyncio.create_task(brokers.watch())
    assert await admin.cluster_id() == "fake"
    name.lead_to(other.bootstrap_servers)
    name.hang_up()
    await until(brokers.another_answers)
    with pytest.raises(WrongClusterError):
        brokers.check_cluster()
    for asking in (
        admin.cluster_id(),
        admin.live_brokers(),
        admin.preferred_broker(),
        admin.describe_client_quotas(ALL_ENTITIES),
        alter(admin, ALICE, validate_only=True),
    ):
        with pytest.raises(WrongClusterError):
            await asking
    name.lead_to(first.bootstrap_servers)
    await until(lambda: not brokers.another_answers())
    assert await admin.cluster_id() == "fake"
    assert (await admin.describe_client_quotas(ALL_ENTITIES)).cluster_id == "fake"
    watching.cancel()
    logged = [
        record.getMessage()
        for record in caplog.records
        if record.name == "app.kafka.cluster_client"
    ]
    assert ["restart the service" in item for item in logged] == [True, False]
    assert "answers again" in logged[1]


async def test_a_bootstrap_server_of_another_cluster_replaces_no_broker(
    first: FakeCluster, other: FakeCluster
):
    servers = f"{first.bootstrap_servers},{other.bootstrap_servers}"
    brokers = Brokers(KafkaSettings(servers, cluster_id="fake"), patience=PATIENT)
    admin = KafkaClientQuotaAdmin(brokers)
    assert await admin.live_brokers() == [1]
    assert not brokers.another_answers()
    first.kill(1)
    await until(lambda: brokers.connections()["idle"] == 0)
    with pytest.raises(WrongClusterError):
        await admin.live_brokers()
    first.start(1)
    assert await admin.live_brokers() == [1]
    await admin.close()


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
