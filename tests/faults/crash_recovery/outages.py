"""Outages, and clients that go on meanwhile."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from tests.faults.crash_recovery.run import Run
from tests.testkit.fake_kafka.state import (
    DROP_AFTER_APPLYING,
    DROP_BEFORE_APPLYING,
    Alteration,
    Fault,
    FaultSchedule,
    apply_late,
    time_out_and_apply_late,
)
from tests.testkit.load import Load
from tests.testkit.sizes import SEED, size

PAUSE_S: Final = size(0.4, 0.2)
"""Between two calls of a client."""

Outage = Callable[[], Awaitable[None]]


async def during_a_load(run: Run, outages: list[Outage], *, between_s: float = 1.0) -> None:
    """Let outages happen one after the other while clients alter."""
    driver = run.driver(Load(calls=100_000, clients=6, entities=30, pause_s=PAUSE_S, seed=SEED))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(driver.run())
        await _one_after_the_other(outages, between_s)
        driver.enough = True
    run.faults += len(outages)


async def _one_after_the_other(outages: list[Outage], between_s: float) -> None:
    chance = random.Random(SEED)
    for outage in outages:
        await asyncio.sleep(between_s * chance.uniform(0.5, 1.0))
        await outage()
    await asyncio.sleep(between_s)


def hanging(freeze: Callable[[], None], thaw: Callable[[], None], seconds: float) -> Outage:
    async def outage() -> None:
        await asyncio.to_thread(freeze)
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(thaw)

    return outage


def dying(kill: Callable[[], None], start: Callable[[], None], seconds: float) -> Outage:
    return hanging(kill, start, seconds)


LATEST_S: Final = 2.5
"""Later than that nothing is applied."""


def random_faults(seed: int, share: float = 0.25) -> FaultSchedule:
    """Return a fault schedule that does something to a share of all alterations."""
    chance = random.Random(seed)

    def decide(alteration: Alteration) -> Fault | None:
        if chance.random() > share:
            return None
        late_s = chance.uniform(0.05, LATEST_S)
        return chance.choice(
            (
                DROP_BEFORE_APPLYING,
                DROP_AFTER_APPLYING,
                apply_late(late_s),
                time_out_and_apply_late(late_s),
                Fault(delay_s=late_s / 10),
                Fault(refused=42),
                Fault(error_code=-1),
            )
        )

    return decide
