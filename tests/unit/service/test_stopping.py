"""A stop waits for what alterations leave to be done, as long as it may."""

import asyncio

import pytest

from app.domain.alterations import Outcome
from app.domain.errors import OutcomeNotRecordedError
from app.service.alterations import alteration_outcomes
from tests.unit.service.alter_world import ALICE, World, setting, until


async def test_an_outcome_that_comes_during_the_stop_is_waited_for_until_it_is_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alteration_outcomes, "ANSWER_WITHOUT_RECORD_S", 0.01)
    world.brokers.gate = asyncio.Event()
    altering = asyncio.create_task(world.alter(setting(ALICE, "5")))
    await until(lambda: "send" in world.log)
    stopping = asyncio.create_task(world.tasks.drain(30))
    world.journal.broken = {"record_conclusion"}
    world.brokers.gate.set()
    with pytest.raises(OutcomeNotRecordedError):
        await altering
    world.journal.broken = set()
    assert await stopping == 0
    assert world.journal.conclusions[0].results[0].outcome is Outcome.APPLIED


async def test_a_stop_waits_no_longer_than_it_may(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alteration_outcomes, "ANSWER_WITHOUT_RECORD_S", 0.01)
    world.journal.broken = {"record_conclusion"}
    with pytest.raises(OutcomeNotRecordedError):
        await world.alter(setting(ALICE, "5"))
    assert await world.tasks.drain(0.05) == 1
    world.journal.broken = set()
    assert await world.tasks.drain(30) == 0


async def test_a_fault_is_said_also_where_the_caller_has_gone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("nobody has thought of that")

    waiting = asyncio.create_task(world.tasks.run(fail()))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await world.tasks.drain(30) == 0
    assert "nobody has thought of that" in caplog.text
