"""Idempotency keys: what is repeated, and what is refused."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.alterations import ClientQuotaAlteration, Outcome, Overall
from app.domain.callers import Caller
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    EntityBusyError,
    InvalidRequestError,
    NotSentError,
    Retry,
    UnknownOutcomeError,
)
from app.service.alterations.alteration_command import (
    AlterationReport,
    IdempotencyKey,
)
from app.service.cluster_ports import EntityVerdict
from tests.testkit.fake_ports import Verdicts
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.alter_world import ALICE, BOB, World, setting, until


def keyed(text: str, fingerprint: bytes = b"f") -> IdempotencyKey:
    return IdempotencyKey(text, fingerprint)


async def test_a_repeated_key_is_answered_from_the_log_and_sends_nothing(world: World) -> None:
    first = await world.alter(setting(ALICE, "5"), key=keyed("k"))
    world.log.clear()
    again = await world.alter(setting(ALICE, "5"), key=keyed("k"))
    assert again.replayed
    assert (again.alteration_id, again.results) == (first.alteration_id, first.results)
    assert "send" not in world.log
    assert "record_intent" not in world.log
    assert (first.readable, again.readable) == (True, None)


@pytest.mark.parametrize("entities", [[ALICE], [ALICE, BOB]])
async def test_a_key_whose_alteration_was_not_sent_runs_it_anew(
    world: World, entities: list[ClientQuotaEntity]
) -> None:
    def unreachable(_: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        raise NotSentError("Connection refused.", code="cluster-unreachable")

    world.brokers.fault = unreachable
    alterations = [setting(one, "5") for one in entities]
    for _ in range(2):
        with pytest.raises(NotSentError) as caught:
            await world.alter(*alterations, key=keyed("k"))
        assert (caught.value.retry, caught.value.replayed) == (Retry.SAFE, False)
    world.brokers.fault = None
    report = await world.alter(*alterations, key=keyed("k"))
    assert (report.overall, report.replayed) == (Overall.APPLIED, False)
    assert len({one.alteration_id for one in world.journal.intents}) == 3


async def test_a_key_of_another_request_is_refused(world: World) -> None:
    await world.alter(setting(ALICE, "5"), key=keyed("k"))
    with pytest.raises(InvalidRequestError) as caught:
        await world.alter(setting(ALICE, "6"), key=keyed("k", b"other"))
    assert caught.value.code == "idempotency-key-reused"


async def test_a_key_belongs_to_one_principal(world: World) -> None:
    await world.alter(setting(ALICE, "5"), key=keyed("k"))
    bob = Caller("User:bob", "127.0.0.1", "bearer")
    report = await world.alter(setting(BOB, "6"), key=keyed("k", b"other"), caller=bob)
    assert not report.replayed


async def test_a_key_whose_alteration_is_running_is_answered_as_running(world: World) -> None:
    world.brokers.gate = asyncio.Event()
    first = asyncio.create_task(world.alter(setting(ALICE, "5"), key=keyed("k")))
    await until(lambda: "send" in world.log)
    with pytest.raises(EntityBusyError) as caught:
        await world.alter(setting(ALICE, "5"), key=keyed("k"))
    assert caught.value.code == "idempotency-key-running"
    world.brokers.gate.set()
    await first


@in_virtual_time
async def test_a_key_that_was_new_to_two_at_once_is_running_not_busy(world: World) -> None:
    world.brokers.gate = asyncio.Event()
    both = [asyncio.create_task(world.alter(setting(ALICE, "5"), key=keyed("k"))) for _ in "ab"]
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    error = done.pop().exception()
    assert isinstance(error, EntityBusyError)
    assert (error.code, error.retry) == ("idempotency-key-running", Retry.SAME_KEY_ONLY)
    world.brokers.gate.set()
    reports = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(one, AlterationReport) for one in reports) == 1
    assert world.log.count("send") == 1


async def test_a_key_whose_outcome_is_unknown_is_answered_as_unknown_again(world: World) -> None:
    world.answer(alice=EntityVerdict(Outcome.UNKNOWN))
    for _ in range(2):
        with pytest.raises(UnknownOutcomeError):
            await world.alter(setting(ALICE, "5"), key=keyed("k"))
    assert world.log.count("send") == 1
