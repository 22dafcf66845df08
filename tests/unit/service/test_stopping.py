"""A stop waits for what alterations leave to be done, as long as it may."""

import asyncio

import pytest

from app.domain.alterations import Outcome
from app.domain.errors import OutcomeNotRecordedError
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.alter_world import ALICE, World, setting, until


@in_virtual_time
async def test_an_outcome_that_comes_during_the_stop_is_waited_for_until_it_is_recorded(
    world: World,
) -> None:
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


@in_virtual_time
async def test_a_stop_waits_no_longer_than_it_may(world: World) -> None:
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
