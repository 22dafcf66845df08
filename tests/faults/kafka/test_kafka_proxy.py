"""The proxy does what it is set to do, before a cluster whose log shows what arrived."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.ports.brokers import AlterAnswer
from tests.testkit.event_loops import in_a_thread, until
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.fake_kafka.server import ALTER, DESCRIBE, METADATA
from tests.testkit.kafka import DEADLINE_S, admin_of, entity, setting
from tests.testkit.proxy import (
    TO_BROKER,
    TO_CLIENT,
    Direction,
    KafkaProxy,
    kafka_proxies,
    kafka_proxy,
)
from tests.testkit.raw_quotas import RawQuotas

SHORT_S = 0.3
ALICE = entity(user="alice")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as fake:
        yield fake


@pytest.fixture
async def proxy(cluster: FakeCluster) -> AsyncIterator[KafkaProxy]:
    async with kafka_proxy(cluster.bootstrap_servers) as running:
        yield running


@pytest.fixture
async def admin(proxy: KafkaProxy) -> AsyncIterator[KafkaClientQuotaAdmin]:
    async with admin_of(proxy.bootstrap_servers) as adapter:
        await adapter.describe_client_quotas(ALL_ENTITIES)
        yield adapter


async def alter(
    admin: KafkaClientQuotaAdmin, value: float = 1, timeout_s: float = DEADLINE_S
) -> AlterAnswer:
    return await admin.alter_client_quotas(
        [setting(ALICE, producer_byte_rate=value)], validate_only=False, timeout_s=timeout_s
    )


def outcome(answer: AlterAnswer) -> Outcome:
    return answer.verdicts[ALICE].outcome


async def test_everything_passes_and_the_client_stays_with_the_proxy(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin
):
    assert outcome(await alter(admin)) is Outcome.APPLIED
    assert await admin.live_brokers() == [1]
    assert proxy.seen(TO_BROKER, ALTER) == cluster.received(ALTER, 1) == 1
    assert proxy.seen(TO_BROKER, METADATA) == cluster.received(METADATA, 1)
    assert proxy.seen(TO_CLIENT, DESCRIBE) == cluster.received(DESCRIBE, 1)
    assert proxy.connections > 0


async def test_the_answer_to_an_alteration_is_lost_and_nothing_else(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin
):
    proxy.drop(TO_CLIENT, ALTER, times=1)
    answer = await alter(admin, timeout_s=SHORT_S)
    assert outcome(answer) is Outcome.UNKNOWN
    assert answer.late is not None
    await admin.describe_client_quotas(ALL_ENTITIES)
    assert len(cluster.apply_log) == 1
    assert outcome(await alter(admin, 2)) is Outcome.APPLIED


async def test_a_request_is_swallowed(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin
):
    proxy.drop(TO_BROKER, ALTER)
    assert outcome(await alter(admin, timeout_s=SHORT_S)) is Outcome.UNKNOWN
    assert cluster.alterations == []
    proxy.pass_all()
    assert outcome(await alter(admin)) is Outcome.APPLIED


@pytest.mark.parametrize("direction", [TO_BROKER, TO_CLIENT])
async def test_the_connection_is_closed_at_a_request_or_at_its_answer(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin, direction: Direction
):
    proxy.close_at(direction, ALTER, times=1)
    answer = await alter(admin)
    assert outcome(answer) is Outcome.UNKNOWN
    assert answer.late is None
    assert len(cluster.apply_log) == (direction is TO_CLIENT)


@pytest.mark.parametrize("direction", [TO_BROKER, TO_CLIENT])
@pytest.mark.parametrize("size", [0, 3, 4, 11, 20])
async def test_the_connection_is_cut_after_some_bytes(
    cluster: FakeCluster,
    proxy: KafkaProxy,
    admin: KafkaClientQuotaAdmin,
    direction: Direction,
    size: int,
):
    proxy.cut_after(size, direction, ALTER, times=1)
    answer = await alter(admin)
    assert outcome(answer) is Outcome.UNKNOWN
    assert answer.late is None
    assert len(cluster.apply_log) == (direction is TO_CLIENT)
    assert outcome(await alter(admin, 2)) is Outcome.APPLIED


async def test_a_delay_makes_an_answer_late(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin
):
    proxy.delay(2 * SHORT_S, TO_CLIENT, ALTER)
    answer = await alter(admin, timeout_s=SHORT_S)
    assert outcome(answer) is Outcome.UNKNOWN
    assert answer.late is not None
    assert outcome(await asyncio.wait_for(answer.late, DEADLINE_S)) is Outcome.APPLIED


async def test_what_is_held_is_sent_afterwards(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin
):
    proxy.hold(TO_BROKER, ALTER)
    answer = await alter(admin, timeout_s=SHORT_S)
    assert outcome(answer) is Outcome.UNKNOWN
    assert cluster.apply_log == []
    proxy.pass_all()
    assert answer.late is not None
    assert outcome(await asyncio.wait_for(answer.late, DEADLINE_S)) is Outcome.APPLIED
    assert len(cluster.apply_log) == 1


async def test_a_black_hole_accepts_connections_and_answers_nothing(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin
):
    proxy.black_hole()
    assert outcome(await alter(admin, timeout_s=SHORT_S)) is Outcome.UNKNOWN
    with pytest.raises(NotSentError):
        await alter(admin, timeout_s=SHORT_S)
    with pytest.raises(NotSentError):
        await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
    assert cluster.alterations == []
    proxy.pass_all()
    assert outcome(await alter(admin)) is Outcome.APPLIED


async def test_a_black_hole_for_answers_alone_lets_requests_pass(
    cluster: FakeCluster, proxy: KafkaProxy, admin: KafkaClientQuotaAdmin
):
    proxy.black_hole([TO_CLIENT])
    assert outcome(await alter(admin, timeout_s=SHORT_S)) is Outcome.UNKNOWN
    await until(lambda: len(cluster.apply_log) == 1)


async def test_connections_are_dropped_and_refused(proxy: KafkaProxy, admin: KafkaClientQuotaAdmin):
    proxy.hang_up()
    await until(lambda: proxy.connections == 0)
    await admin.describe_client_quotas(ALL_ENTITIES)
    proxy.refuse()
    with pytest.raises(NotSentError):
        await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
    proxy.pass_all()
    await admin.describe_client_quotas(ALL_ENTITIES)


async def test_without_a_broker_behind_it_a_proxy_closes(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    cluster.kill(1)
    with pytest.raises(NotSentError):
        await admin.describe_client_quotas(ALL_ENTITIES)
    cluster.start(1)
    await admin.describe_client_quotas(ALL_ENTITIES)


async def test_each_broker_of_a_cluster_has_its_proxy():
    async with (
        fake_cluster(3) as cluster,
        kafka_proxies(cluster.bootstrap_servers) as proxies,
        admin_of(proxies[0].bootstrap_servers) as admin,
    ):
        for broker_id in (1, 2, 3):
            described = await admin.describe_client_quotas(ALL_ENTITIES, broker_id=broker_id)
            assert described.broker_id == broker_id
        assert [proxy.seen(TO_BROKER, DESCRIBE) for proxy in proxies] == [1, 1, 1]


def test_a_proxy_in_a_thread_is_controlled_from_another():
    with (
        in_a_thread(fake_cluster) as cluster,
        in_a_thread(lambda: kafka_proxy(cluster.bootstrap_servers)) as proxy,
        RawQuotas(proxy.bootstrap_servers) as raw,
    ):
        raw.store({"user": "alice"}, {"producer_byte_rate": 1.0})
        proxy.close_at(TO_CLIENT, DESCRIBE)
        with pytest.raises((AssertionError, ConnectionError)):
            raw.describe()
