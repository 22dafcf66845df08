"""How long requests wait to be sent, how many for their answers, and how each is counted."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError
from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum
from app.service.runtime.clock import boot_time
from tests.faults.kafka.conftest import ALICE, BOB, SHORT_S
from tests.testkit.counted_metrics import CountedBrokers
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import (
    DROP_AFTER_APPLYING,
    NEVER_ANSWER,
    FakeCluster,
    Fault,
)
from tests.testkit.fake_kafka.server import ALTER, fake_broker, silent
from tests.testkit.kafka import DEADLINE_S, admin_of, alter, brokers_of, setting

SEND_WITHIN_S = 0.3
SENT_WITHIN_S = 2.0
"""Enough for a request over an open connection on a busy machine."""


async def sent_too_late(
    admin: KafkaClientQuotaAdmin, within_s: float = SEND_WITHIN_S
) -> asyncio.Task[object]:
    """Return a sending that has waited until its intent was too old."""
    send_by = boot_time() + within_s
    change = [setting(BOB, producer_byte_rate=2)]
    work = admin.alter_client_quotas(change, validate_only=False, send_by=send_by)
    sending: asyncio.Task[object] = asyncio.create_task(work)
    await until(lambda: boot_time() > send_by)
    return sending


async def test_what_waited_too_long_to_be_sent_is_not_sent_when_it_could_be(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    cluster.pause_controller()
    waiting = [asyncio.create_task(alter(admin, ALICE, timeout_s=DEADLINE_S)) for _ in range(16)]
    await until(lambda: len(cluster.alterations) == 16)
    sending = await sent_too_late(admin)
    cluster.resume_controller()
    with pytest.raises(NotSentError):
        await sending
    await asyncio.wait_for(asyncio.gather(*waiting), DEADLINE_S)
    assert BOB not in cluster.quotas


async def test_who_was_not_connected_in_time_is_not_sent_when_the_broker_answers(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    cluster.freeze(1)
    sending = await sent_too_late(admin)
    cluster.thaw(1)
    with pytest.raises(NotSentError):
        await sending
    assert cluster.alterations == []


async def test_what_is_sent_in_time_may_be_answered_later(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    await admin.live_brokers()  # so that it only has to be sent in time, and not to be connected
    cluster.pause_controller()
    sending = await sent_too_late(admin, SENT_WITHIN_S)
    cluster.resume_controller()
    await sending
    assert cluster.quotas[BOB] == {"producer_byte_rate": 2.0}


async def test_timed_out_alterations_are_counted_apart_up_to_a_limit():
    async with fake_broker({ALTER: silent}) as broker, admin_of(broker.bootstrap_servers) as admin:
        async with asyncio.timeout(60):
            while broker.received.get(ALTER, 0) < 64 + 16:
                surplus = (alter(admin, ALICE, timeout_s=SHORT_S) for _ in range(16))
                await asyncio.gather(*surplus, return_exceptions=True)
        await admin.live_brokers()
        with pytest.raises(NotSentError, match="Too many requests wait"):
            await alter(admin, ALICE, timeout_s=SHORT_S)
        assert broker.received[ALTER] == 64 + 16


@pytest.fixture
def counted() -> CountedBrokers:
    return CountedBrokers()


@pytest.fixture
async def brokers(cluster: FakeCluster, counted: CountedBrokers) -> AsyncIterator[Brokers]:
    async with brokers_of(cluster.bootstrap_servers, counted) as connections:
        yield connections


async def test_what_is_answered_is_counted_by_its_name_in_kafka(
    brokers: Brokers, counted: CountedBrokers
):
    admin = KafkaClientQuotaAdmin(brokers)
    assert brokers.connections() == {"idle": 0, "busy": 0}
    await admin.describe_client_quotas(ALL_ENTITIES)
    await alter(admin, ALICE, BOB)
    await KafkaMetadataQuorum(brokers).quorum()
    once = ("ApiVersions", "DescribeClientQuotas", "AlterClientQuotas", "DescribeQuorum")
    metadata = 2  # of the connection, and who is alive
    assert counted.counts == {
        f"kafka_request_seconds {name} answered": number
        for name, number in {**dict.fromkeys(once, 1), "Metadata": metadata}.items()
    }
    assert counted.within("kafka_request_seconds", DEADLINE_S) == 6
    assert brokers.connections() == {"idle": 1, "busy": 0}


async def test_an_error_is_counted_once_for_each_answer(
    cluster: FakeCluster, brokers: Brokers, counted: CountedBrokers
):
    cluster.fail_next(Fault(error_code=7))
    await alter(KafkaClientQuotaAdmin(brokers), ALICE, BOB)
    assert counted.counts["kafka_request_seconds AlterClientQuotas answered"] == 1
    assert counted.counts["kafka_errors AlterClientQuotas REQUEST_TIMED_OUT"] == 1


async def test_a_connection_that_breaks_is_a_lost_request(
    cluster: FakeCluster, brokers: Brokers, counted: CountedBrokers
):
    cluster.fail_next(DROP_AFTER_APPLYING)
    await alter(KafkaClientQuotaAdmin(brokers), ALICE, BOB)
    assert counted.counts["kafka_request_seconds AlterClientQuotas lost"] == 1
    await until(lambda: sum(brokers.connections().values()) == 0)


async def test_who_waits_no_longer_abandons_the_request(
    cluster: FakeCluster, brokers: Brokers, counted: CountedBrokers
):
    cluster.fail_next(NEVER_ANSWER)
    admin = KafkaClientQuotaAdmin(brokers, listen_for_s=0.1)
    asking = alter(admin, ALICE, BOB, timeout_s=DEADLINE_S)
    altering = asyncio.create_task(asking)
    await until(lambda: brokers.connections()["busy"] == 1)
    await altering
    await until(lambda: counted.counts["kafka_request_seconds AlterClientQuotas abandoned"] == 1)


async def test_a_cluster_that_cannot_be_reached_is_no_request(counted: CountedBrokers):
    async with brokers_of("127.0.0.1:1", counted) as brokers:
        with pytest.raises(NotSentError):
            await KafkaClientQuotaAdmin(brokers).live_brokers()
    assert not counted.counts
