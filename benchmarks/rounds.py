"""Rounds: in each one every arm acts once, so that all arms meet the same weather."""

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from benchmarks.measures import Measure


class Arm(ABC):
    """One of the alternatives that are compared.

    Attributes:
        name: For the table.
        every: The arm runs in each such round: 2 is every second.
    """

    def __init__(self, name: str, *, every: int = 1) -> None:
        self.name = name
        self.every = every

    async def prepare(self) -> None:
        """Do what is not timed."""
        return

    @abstractmethod
    async def call(self) -> float | None:
        """Do what is timed; return the milliseconds where another process has measured them."""

    async def settle(self) -> None:
        """Wait, untimed, until the next arm meets a quiet cluster."""
        return


async def interleaved(arms: Sequence[Arm], *, rounds: int, warm_up: int) -> Mapping[str, Measure]:
    """Measure the arms in turns, each round beginning with another one.

    Args:
        arms: Each with a name of its own.
        rounds: How many.
        warm_up: Rounds before those, whose figures are thrown away.

    Returns:
        Milliseconds, by the arm's name.
    """
    figures: dict[str, list[float | None]] = {arm.name: [] for arm in arms}
    for number in range(-warm_up, rounds):
        first = number % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            figure = await _timed(arm) if number % arm.every == 0 else None
            if number >= 0:
                figures[arm.name].append(figure)
    return {name: Measure(by_round) for name, by_round in figures.items()}


async def _timed(arm: Arm) -> float:
    """Return the milliseconds that the call took; our own garbage is not collected meanwhile."""
    await arm.prepare()
    gc.disable()
    try:
        begun = time.perf_counter()
        reported_ms = await arm.call()
        took = time.perf_counter() - begun
    finally:
        gc.enable()
    await arm.settle()
    return took * 1000 if reported_ms is None else reported_ms
