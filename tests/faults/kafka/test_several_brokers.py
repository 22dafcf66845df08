"""A cluster in which brokers are gone, hang, are of another, or do not say whose code decides."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError, WrongClusterError
from app.kafka import cluster_facts as clusters
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster
from app.kafka.config import KafkaSettings
from app.kafka.connection import Purpose
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.ports.brokers import CallbackReports
from tests.faults.kafka.conftest import ALICE, NO_QUOTAS, SHORT_S, verdicts
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.fake_kafka.messages import configs_answer, encoded
from tests.testkit.fake_kafka.server import (
    ALTER,
    API_VERSIONS,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    FakeBroker,
    Reply,
    answering,
    closing,
    fake_broker,
    silent,
)
from tests.testkit.http import closed_port
from tests.testkit.kafka import DEADLINE_S, alter, brokers_of, eventually
from tests.testkit.patience import PATIENT
from tests.testkit.proxy import kafka_proxy

REPLIES = {DESCRIBE: answering(NO_QUOTAS), ALTER: answering(verdicts(alice=0))}


@pytest.fixture
async def healthy() -> AsyncIterator[FakeBroker]:
    async with fake_broker(REPLIES) as broker:
        yield broker


@pytest.fixture
async def hanging() -> AsyncIterator[FakeBroker]:
    async with fake_broker({API_VERSIONS: silent}) as broker:
        yield broker


@pytest.fixture
def dead_port() -> Iterator[int]:
    with closed_port() as port:
        yield port


@pytest.fixture
async def admin(healthy: FakeBroker) -> AsyncIterator[KafkaClientQuotaAdmin]:
    adapter = KafkaClientQuotaAdmin(
        Brokers(KafkaSettings(healthy.bootstrap_servers), patience=PATIENT)
    )
    yield adapter
    await adapter.close()


async def test_a_request_for_any_broker_is_served_by_a_live_broker(
    healthy: FakeBroker, admin: KafkaClientQuotaAdmin, dead_port: int
):
    healthy.peers = {8: dead_port}
    for _ in range(10):
        assert (await admin.describe_client_quotas(ALL_ENTITIES)).broker_id == 7
        answer = await alter(admin, ALICE)
        assert answer.verdicts[ALICE].outcome is Outcome.APPLIED
        assert answer.broker_id == 7
    assert healthy.received[ALTER] == 10
    assert await admin.live_brokers() == [7, 8]


async def test_a_request_for_a_dead_broker_goes_to_no_other(
    healthy: FakeBroker, admin: KafkaClientQuotaAdmin, dead_port: int
):
    healthy.peers = {8: dead_port}
    with pytest.raises(NotSentError, match=str(dead_port)):
        await admin.describe_client_quotas(ALL_ENTITIES, broker_id=8)
    with pytest.raises(NotSentError, match=str(dead_port)):
        await alter(admin, ALICE, broker_id=8)
    assert DESCRIBE not in healthy.received
    assert ALTER not in healthy.received
    assert (await admin.describe_client_quotas(ALL_ENTITIES, broker_id=7)).broker_id == 7


async def test_a_hanging_broker_is_waited_for_once_at_most(
    healthy: FakeBroker, hanging: FakeBroker, admin: KafkaClientQuotaAdmin
):
    healthy.peers = {8: hanging.port}
    for _ in range(10):
        described = await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=4.0)
        assert described.broker_id == 7
    assert hanging.received.get(API_VERSIONS, 0) <= 1


async def test_a_hanging_bootstrap_server_leaves_time_for_the_next(
    healthy: FakeBroker, hanging: FakeBroker
):
    servers = f"{hanging.bootstrap_servers},{healthy.bootstrap_servers}"
    admins = [
        KafkaClientQuotaAdmin(Brokers(KafkaSettings(servers), patience=PATIENT)) for _ in range(5)
    ]
    asking = (admin.describe_client_quotas(ALL_ENTITIES, timeout_s=4.0) for admin in admins)
    assert [described.broker_id for described in await asyncio.gather(*asking)] == [7] * 5
    for admin in admins:
        await admin.close()


async def test_the_cluster_id_is_remembered_when_all_brokers_are_gone(
    healthy: FakeBroker, admin: KafkaClientQuotaAdmin
):
    assert await admin.cluster_id() == "fake"
    healthy.peers = {}
    healthy.replies[API_VERSIONS] = closing
    healthy.hang_up()
    with pytest.raises(NotSentError) as caught:
        await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
    assert caught.value.code == "cluster-unreachable"
    assert await admin.cluster_id() == "fake"


async def test_a_broker_that_appears_is_found_by_its_id(
    healthy: FakeBroker, admin: KafkaClientQuotaAdmin
):
    with pytest.raises(NotSentError, match="Broker 9 is not among the live brokers"):
        await admin.describe_client_quotas(ALL_ENTITIES, broker_id=9)
    async with fake_broker(REPLIES) as newcomer:
        healthy.peers = {9: newcomer.port}
        described = await admin.describe_client_quotas(ALL_ENTITIES, broker_id=9)
        assert described.broker_id == 9
        assert newcomer.received[DESCRIBE] == 1


async def test_that_no_broker_responds_is_logged_once_and_so_is_their_return(
    caplog: pytest.LogCaptureFixture,
):
    name = "app.kafka.cluster_client"
    caplog.set_level(logging.INFO, logger=name)

    def logged() -> list[str]:
        records = (record for record in caplog.records if record.name == name)
        return [record.getMessage().partition(":")[0] for record in records]

    async with fake_cluster() as cluster:
        cluster.kill(1)
        async with brokers_of(cluster.bootstrap_servers) as brokers:
            watching = asyncio.create_task(brokers.watch())
            await until(lambda: logged() == ["no broker responds"])
            cluster.start(1)
            await until(lambda: logged() == ["no broker responds", "brokers respond"])
            watching.cancel()


@pytest.fixture
async def first() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as cluster:
        yield cluster


@pytest.fixture
async def other() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as cluster:
        cluster.cluster_id = "other"
        yield cluster


async def test_a_new_connection_that_leads_to_another_cluster_is_not_used(
    first: FakeCluster, other: FakeCluster
):
    async with (
        kafka_proxy(first.bootstrap_servers) as name,
        brokers_of(name.bootstrap_servers) as brokers,
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


CALLBACK = "com.example.Quotas"
BROKERS = (1, 2)


@pytest.fixture
async def facts(brokers: Brokers) -> AsyncIterator[KafkaCluster]:
    facts = KafkaCluster(brokers)
    yield facts
    await facts.close()


def reply_to_all(cluster: FakeCluster, reply: Reply | None) -> None:
    """Let each broker reply so about its configuration; null is the healthy reply again."""
    for broker_id in BROKERS:
        cluster.reply_with(DESCRIBE_CONFIGS, reply, broker_id=broker_id)


def configs_refused(error_code: int) -> Reply:
    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(encoded(configs_answer(request, None, error_code=error_code), request))

    return reply


async def test_a_failed_question_is_not_taken_for_an_answer(
    cluster: FakeCluster, facts: KafkaCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(clusters, "_DOUBTED_AFTER_S", 0.0)
    cluster.callback = CALLBACK
    reply_to_all(cluster, closing)
    assert (await facts.callback_reports()).custom is None
    reply_to_all(cluster, None)
    await eventually(lambda: custom_callback(facts), CALLBACK)


@pytest.mark.parametrize("reply", [closing, *map(configs_refused, (-1, 7, 29, 41))])
async def test_the_last_answer_of_a_broker_stands_while_there_is_no_other(
    reply: Reply, cluster: FakeCluster, facts: KafkaCluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.callback = CALLBACK
    assert (await facts.callback_reports()).custom == CALLBACK
    monkeypatch.setattr(clusters, "_WAITED_FOR_AFTER_S", 0.0)
    reply_to_all(cluster, reply)
    assert (await facts.callback_reports()).custom == CALLBACK
    reply_to_all(cluster, None)
    cluster.callback = None
    assert (await facts.callback_reports()).custom is None


async def custom_callback(facts: KafkaCluster) -> str | None:
    return (await facts.callback_reports()).custom


def at_once(facts: KafkaCluster) -> str | None:
    """Return what is responded without waiting for anything."""
    with pytest.raises(StopIteration) as done:
        facts.callback_reports().send(None)
    reports: CallbackReports = done.value.value
    return reports.custom


async def test_nobody_waits_for_an_answer_to_be_renewed(
    cluster: FakeCluster, facts: KafkaCluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.callback = CALLBACK
    assert (await facts.callback_reports()).custom == CALLBACK
    monkeypatch.setattr(clusters, "_MAX_AGE_S", 0.0)
    cluster.callback = None
    assert at_once(facts) == CALLBACK
    await until(lambda: at_once(facts) is None)


async def test_nobody_waits_again_for_brokers_that_are_away(
    cluster: FakeCluster, facts: KafkaCluster
):
    for each in BROKERS:
        cluster.kill(each)
    assert (await facts.callback_reports()).custom is None
    assert at_once(facts) is None


async def test_an_answer_is_cached_for_a_minute(cluster: FakeCluster, facts: KafkaCluster):
    for _ in range(5):
        assert (await facts.callback_reports()).custom is None
    assert [cluster.received(DESCRIBE_CONFIGS, each) for each in BROKERS] == [1, 1]
