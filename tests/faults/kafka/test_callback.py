"""Whether brokers decide by code of their own: a missing answer is asked for again."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.kafka import cluster_facts as clusters
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.fake_kafka.server import DESCRIBE_CONFIGS, closing
from tests.testkit.kafka import DEADLINE_S

CALLBACK = "com.example.Quotas"
BROKERS = (1, 2)


@pytest.fixture
async def facts(brokers: Brokers) -> AsyncIterator[KafkaCluster]:
    facts = KafkaCluster(brokers)
    yield facts
    await facts.close()


def break_configurations(cluster: FakeCluster) -> None:
    for broker_id in BROKERS:
        cluster.reply_with(DESCRIBE_CONFIGS, closing, broker_id=broker_id)


def mend_configurations(cluster: FakeCluster) -> None:
    for broker_id in BROKERS:
        cluster.reply_with(DESCRIBE_CONFIGS, None, broker_id=broker_id)


async def test_a_failed_question_is_not_taken_for_an_answer(
    cluster: FakeCluster, facts: KafkaCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(clusters, "_DOUBTED_AFTER_S", 0.0)
    cluster.callback = CALLBACK
    break_configurations(cluster)
    assert await facts.custom_callback() is None
    mend_configurations(cluster)
    async with asyncio.timeout(DEADLINE_S):
        while await facts.custom_callback() != CALLBACK:
            await asyncio.sleep(0.001)


async def test_the_last_answer_of_a_broker_stands_while_there_is_no_other(
    cluster: FakeCluster, facts: KafkaCluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.callback = CALLBACK
    assert await facts.custom_callback() == CALLBACK
    monkeypatch.setattr(clusters, "_WAITED_FOR_AFTER_S", 0.0)
    break_configurations(cluster)
    assert await facts.custom_callback() == CALLBACK
    mend_configurations(cluster)
    cluster.callback = None
    assert await facts.custom_callback() is None


def at_once(facts: KafkaCluster) -> str | None:
    """Return what is responded without waiting for anything."""
    with pytest.raises(StopIteration) as done:
        facts.custom_callback().send(None)
    value: str | None = done.value.value
    return value


async def test_nobody_waits_for_an_answer_to_be_renewed(
    cluster: FakeCluster, facts: KafkaCluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.callback = CALLBACK
    assert await facts.custom_callback() == CALLBACK
    monkeypatch.setattr(clusters, "_MAX_AGE_S", 0.0)
    cluster.callback = None
    assert at_once(facts) == CALLBACK
    async with asyncio.timeout(DEADLINE_S):
        while at_once(facts) is not None:
            await asyncio.sleep(0.001)


async def test_nobody_waits_again_for_brokers_that_are_away(
    cluster: FakeCluster, facts: KafkaCluster
):
    for each in BROKERS:
        cluster.kill(each)
    assert await facts.custom_callback() is None
    assert at_once(facts) is None


async def test_an_answer_is_cached_for_a_minute(cluster: FakeCluster, facts: KafkaCluster):
    for _ in range(5):
        assert await facts.custom_callback() is None
    assert [cluster.received(DESCRIBE_CONFIGS, each) for each in BROKERS] == [1, 1]
