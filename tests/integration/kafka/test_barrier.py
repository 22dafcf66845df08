"""Barrier reads on a real broker: what was acknowledged before is always seen."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaMetadataQuorum
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.ports.brokers import BarrierUnavailableError
from tests.testkit.accounts import granted
from tests.testkit.kafka import (
    DEADLINE_S,
    as_user,
    brokers_of,
    entity,
    eventually,
    setting,
    store,
    unique,
)
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
    barrier = Barrier(KafkaMetadataQuorum(brokers), CurrentValues(quota_admin))
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
        barrier = Barrier(KafkaMetadataQuorum(nobody), CurrentValues(quota_admin))
        read = await barrier.read([entity(user=unique())], broker_id=1)
    assert read.quorum is None


async def test_the_right_to_describe_the_cluster_is_enough(broker: LocalKafka, nobody: Brokers):
    with granted(broker, acl("nobody", "DESCRIBE")):
        assert (await KafkaMetadataQuorum(nobody).quorum()).leader_epoch > 0
