"""How long an alteration may wait to be sent, and how many may wait for their answers."""

import asyncio

import pytest

from app.domain.errors import NotSentError
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.alterations.group_commit import AlterBatcher
from app.service.runtime.clock import boot_time
from tests.faults.kafka.conftest import ALICE, BOB, SHORT_S
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.fake_kafka.server import ALTER, fake_broker, silent
from tests.testkit.kafka import DEADLINE_S, admin_of, alter, setting

SEND_WITHIN_S = 0.3


async def sent_too_late(admin: KafkaClientQuotaAdmin) -> asyncio.Task[object]:
    """Return a sending that has waited until its intent was too old."""
    send_by = boot_time() + SEND_WITHIN_S
    change = [setting(BOB, producer_byte_rate=2)]
    work = AlterBatcher(admin).send(change, broker_id=None, send_by=send_by)
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
    cluster.pause_controller()
    sending = await sent_too_late(admin)
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
