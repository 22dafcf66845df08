"""One process sticks to one broker, so that what it reads never goes back in time."""

import asyncio
from typing import Any

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError
from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum
from app.service.runtime.clock import Patience
from tests.faults.kafka.conftest import ALICE, SHORT_S
from tests.testkit import kafka
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.fake_kafka.server import METADATA, closing
from tests.testkit.kafka import DEADLINE_S, barrier_of, outcomes_of, values_of

BROKERS = (1, 2, 3)


async def alter(admin: KafkaClientQuotaAdmin, value: float, **options: Any) -> int:
    """Alter, and return the broker that was asked."""
    asked = {"timeout_s": DEADLINE_S, **options}
    return (await kafka.alter(admin, ALICE, value=value, **asked)).broker_id


async def test_alterations_and_reads_without_a_wish_go_to_the_preferred_broker(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    preferred = await admin.preferred_broker()
    for other in set(BROKERS) - {preferred}:
        cluster.lag(other, 3600.0)
    for value in range(1, 21):
        assert await alter(admin, value) == preferred
        assert await values_of(admin, ALICE) == {"producer_byte_rate": float(value)}
        assert await admin.live_brokers() == list(BROKERS)
        assert await admin.preferred_broker() == preferred


async def test_a_request_for_another_broker_does_not_change_the_preferred_broker(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    preferred = await admin.preferred_broker()
    for broker_id in BROKERS:
        described = await admin.describe_client_quotas(ALL_ENTITIES, broker_id=broker_id)
        assert described.broker_id == broker_id
        assert await alter(admin, 1, broker_id=broker_id) == broker_id
        assert await admin.preferred_broker() == preferred
    other = next(each for each in BROKERS if each != preferred)
    cluster.kill(other)
    with pytest.raises(NotSentError):
        await admin.describe_client_quotas(ALL_ENTITIES, broker_id=other)
    assert await admin.preferred_broker() == preferred


async def test_another_broker_is_preferred_when_it_is_gone_and_stays_so_when_it_is_back(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    for _ in range(4):
        old = await admin.preferred_broker()
        cluster.kill(old, still_listed=True)
        async with asyncio.timeout(DEADLINE_S):
            while (new := await admin.preferred_broker()) == old:
                await asyncio.sleep(0)
        assert (await admin.describe_client_quotas(ALL_ENTITIES)).broker_id == new
        cluster.start(old)
        assert await admin.live_brokers() == list(BROKERS)
        assert await admin.preferred_broker() == new


async def test_a_broker_that_hangs_is_preferred_no_longer(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    old = await admin.preferred_broker()
    cluster.freeze(old)
    with pytest.raises(NotSentError):
        await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
    new = await admin.preferred_broker()
    assert new != old
    cluster.thaw(old)
    assert await admin.live_brokers() == list(BROKERS)
    assert await admin.preferred_broker() == new


@pytest.mark.parametrize("patience", [Patience(broker_answer_s=6.0)])
async def test_a_broker_on_which_an_alteration_hangs_is_asked_whether_it_is_alive(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    old = await admin.preferred_broker()
    await admin.describe_client_quotas(ALL_ENTITIES)
    cluster.freeze(old)
    await alter(admin, 1, timeout_s=SHORT_S)
    assert await admin.preferred_broker() != old


async def test_a_controller_that_hangs_is_not_the_fault_of_the_broker(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin, brokers: Brokers
):
    preferred = await admin.preferred_broker()
    cluster.pause_controller()
    for value in range(1, 5):
        assert await alter(admin, value, timeout_s=SHORT_S) == preferred
        assert await admin.preferred_broker() == preferred
        with pytest.raises(NotSentError):
            await KafkaMetadataQuorum(brokers).quorum(timeout_s=SHORT_S)
        assert await admin.preferred_broker() == preferred
    cluster.resume_controller()
    assert (await admin.describe_client_quotas(ALL_ENTITIES)).broker_id == preferred


async def test_many_who_wait_for_a_frozen_controller_hold_up_no_read(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin, brokers: Brokers
):
    preferred = await admin.preferred_broker()
    cluster.pause_controller()
    quorum = KafkaMetadataQuorum(brokers)
    waiting = [
        *(asyncio.create_task(quorum.quorum(timeout_s=DEADLINE_S)) for _ in range(20)),
        *(asyncio.create_task(alter_patiently(admin)) for _ in range(20)),
    ]
    for _ in range(20):
        described = await admin.describe_client_quotas(ALL_ENTITIES)
        assert described.broker_id == preferred
    assert not any(task.done() for task in waiting)
    cluster.resume_controller()
    await asyncio.wait_for(asyncio.gather(*waiting), DEADLINE_S)


async def alter_patiently(admin: KafkaClientQuotaAdmin) -> None:
    answer = await kafka.alter(admin, ALICE, timeout_s=DEADLINE_S)
    assert outcomes_of(answer) == [Outcome.APPLIED]


async def test_beyond_the_limit_nothing_is_sent_and_no_broker_is_blamed(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    preferred = await admin.preferred_broker()
    cluster.pause_controller()
    waiting = [asyncio.create_task(alter_patiently(admin)) for _ in range(16)]
    await until(lambda: len(cluster.alterations) == 16)
    with pytest.raises(NotSentError, match="Too many requests wait for the broker"):
        await alter(admin, 1, timeout_s=SHORT_S)
    assert await admin.preferred_broker() == preferred
    assert (await admin.describe_client_quotas(ALL_ENTITIES)).broker_id == preferred
    assert len(cluster.alterations) == 16
    cluster.resume_controller()
    await asyncio.wait_for(asyncio.gather(*waiting), DEADLINE_S)


async def test_without_any_broker_none_is_preferred(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    for broker_id in BROKERS:
        cluster.kill(broker_id)
    with pytest.raises(NotSentError) as caught:
        await admin.preferred_broker(timeout_s=1.0)
    assert caught.value.code == "cluster-unreachable"


async def test_a_cluster_whose_brokers_are_all_fenced_is_asked_again_until_one_is_back(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    await admin.preferred_broker()
    for broker_id in BROKERS:
        cluster.fence(broker_id)
    for _ in range(2):
        with pytest.raises(NotSentError, match="no live broker"):
            await admin.live_brokers()
        with pytest.raises(NotSentError, match="no live broker"):
            await alter(admin, 1)
    cluster.unfence(2)
    assert await alter(admin, 2) == 2
    assert await admin.preferred_broker() == 2
    assert await admin.live_brokers() == [2]


async def test_a_broker_that_does_not_tell_of_the_cluster_is_not_preferred(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    cluster.reply_with(METADATA, closing, broker_id=1)
    assert await admin.live_brokers() == list(BROKERS)
    assert await admin.preferred_broker() != 1


@pytest.mark.parametrize("patience", [Patience(broker_answer_s=6.0)])
async def test_a_patient_caller_does_not_keep_the_others_from_a_broker_that_answers(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin, brokers: Brokers
):
    frozen = await admin.preferred_broker()
    cluster.freeze(frozen)
    brokers.invalidate_metadata()
    asked = cluster.received(METADATA, frozen)
    patient = asyncio.create_task(
        admin.describe_client_quotas(ALL_ENTITIES, timeout_s=10 * DEADLINE_S)
    )
    await until(lambda: cluster.received(METADATA, frozen) > asked or patient.done())
    described = await admin.describe_client_quotas(ALL_ENTITIES)
    assert described.broker_id != frozen
    assert (await asyncio.wait_for(patient, DEADLINE_S)).broker_id != frozen


async def test_a_barrier_waits_for_a_broker_that_publishes_late(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin, brokers: Brokers
):
    barrier, quorum = barrier_of(brokers, admin), KafkaMetadataQuorum(brokers)
    cluster.lag(1, 0.1)
    value, stale = 0, 0
    async with asyncio.timeout(DEADLINE_S):
        while stale < 5:  # what is looked at too late is not stale any more
            value += 1
            wanted = {ALICE: {"producer_byte_rate": float(value)}}
            await alter(admin, value, broker_id=1)
            described = await admin.describe_client_quotas(ALL_ENTITIES, broker_id=1)
            stale += described.quotas != wanted
            assert (await barrier.read([ALICE], broker_id=1)).values == wanted
    cluster.lag(1, 3600.0)
    await alter(admin, value + 1, broker_id=1)
    offsets = [await quorum.published_offset(broker_id=n, timeout_s=DEADLINE_S) for n in (1, 2)]
    assert offsets[0] < offsets[1] == (await quorum.quorum(broker_id=1)).high_watermark - 1
