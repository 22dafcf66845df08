"""Every answer to DescribeQuorum: only a complete answer is a state of the quorum."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from app.domain.errors import NotSentError
from app.kafka.cluster_facts import KafkaMetadataQuorum
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.ports.brokers import BarrierUnavailableError, QuorumState
from tests.testkit.fake_kafka.messages import quorum_answer, versions_answer
from tests.testkit.fake_kafka.server import (
    API_VERSIONS,
    DESCRIBE_QUORUM,
    HEALTHY_VERSIONS,
    METADATA,
    FakeBroker,
    Reply,
    answering,
    closing,
    fake_broker,
    sending,
    silent,
)
from tests.testkit.kafka import DEADLINE_S, brokers_of

SHORT_S = 0.3

answer = partial(quorum_answer, 1, 3, 100)


async def ask(
    reply: Reply, versions: dict[int, tuple[int, int]] | None = None, timeout_s: float = DEADLINE_S
) -> QuorumState:
    offered = HEALTHY_VERSIONS if versions is None else versions
    async with (
        fake_broker({DESCRIBE_QUORUM: reply}, offered) as broker,
        brokers_of(broker.bootstrap_servers) as brokers,
    ):
        return await KafkaMetadataQuorum(brokers).quorum(timeout_s=timeout_s)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_each_version_has_the_epoch_and_the_high_watermark(version: int):
    versions = {**HEALTHY_VERSIONS, DESCRIBE_QUORUM: (0, version)}
    assert await ask(answering(answer()), versions) == QuorumState(3, 100)


@asynccontextmanager
async def barrier_behind(reply: Reply) -> AsyncIterator[tuple[FakeBroker, Barrier]]:
    async with (
        fake_broker({DESCRIBE_QUORUM: reply}) as broker,
        brokers_of(broker.bootstrap_servers) as brokers,
    ):
        values = CurrentValues(KafkaClientQuotaAdmin(brokers))
        yield broker, Barrier(KafkaMetadataQuorum(brokers), values)


async def test_a_broker_that_reports_no_published_offset_has_no_barrier():
    async with barrier_behind(answering(answer())) as (_, barrier):
        assert (await barrier.read((), broker_id=7)).quorum is None


@pytest.mark.parametrize("version", [0, 3])
async def test_a_broker_that_refuses_to_tell_what_it_has_published_ends_an_alteration_unsent(
    version: int,
):
    async with barrier_behind(answering(answer())) as (broker, barrier):
        assert (await barrier.read((), broker_id=7)).quorum is None
        refusal = versions_answer({}, error_code=42)
        broker.replies[API_VERSIONS] = answering(refusal, version)
        with pytest.raises(NotSentError, match="ApiVersions"):
            await barrier.read((), broker_id=7)


@pytest.mark.parametrize("refusal", [answer(error_code=31), answer(partition_error_code=31)])
async def test_without_the_right_to_describe_the_cluster_there_is_no_barrier(refusal: Any):
    with pytest.raises(BarrierUnavailableError, match="ALLOW DESCRIBE on Cluster kafka-cluster"):
        await ask(answering(refusal))


async def test_a_broker_that_does_not_know_the_quorum_has_no_barrier():
    versions = {key: HEALTHY_VERSIONS[key] for key in (METADATA, API_VERSIONS)}
    with pytest.raises(BarrierUnavailableError):
        await ask(silent, versions)


async def test_any_other_answer_is_none(subtests: pytest.Subtests):
    for reply in [
        answering(answer(error_code=7)),
        answering(answer(partition_error_code=6)),
        answering(answer(partitions=0)),
        sending(b"\0" + bytes(7)),
        sending(bytes(range(200))),
        closing,
        silent,
    ]:
        with subtests.test(reply=reply):
            with pytest.raises(NotSentError) as caught:
                await ask(reply, timeout_s=SHORT_S if reply is silent else DEADLINE_S)
            assert caught.value.code == "cluster-unreachable"
