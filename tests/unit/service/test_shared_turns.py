"""Turns that callers share: who waits for whom, and whose failure is whose."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from app.service.shared_turns import MOST_TURNS, SharedTurns

LONG_S = 30.0


class Work:
    """Records the turns; each ends when it is told to."""

    def __init__(self, *, held: bool = True) -> None:
        self.turns: list[list[str]] = []
        self.gates: list[asyncio.Event] = []
        self.held = held
        self.at_once = 0
        self._under_way = 0

    async def __call__(self, items: Sequence[str]) -> Sequence[str | Exception]:
        self.turns.append(list(items))
        gate = asyncio.Event()
        self.gates.append(gate)
        self._under_way += 1
        self.at_once = max(self.at_once, self._under_way)
        if self.held:
            await gate.wait()
        self._under_way -= 1
        return [KeyError(one) if one.startswith("bad") else one.upper() for one in items]

    async def begun(self, number: int) -> None:
        async with asyncio.timeout(LONG_S):
            while len(self.turns) < number:
                await asyncio.sleep(0)


def at_most(number: int) -> Callable[[], Callable[[str], bool]]:
    """Room for so many items; a big one never fits."""

    def room() -> Callable[[str], bool]:
        taken: list[int] = []

        def fits(item: str) -> bool:
            size = number + 1 if item == "big" else 1
            room_is_left = sum(taken) + size <= number
            if room_is_left or not taken:
                taken.append(size)
            return room_is_left

        return fits

    return room


def turns_of(work: Work, *, places: int = 100, patience_s: float = LONG_S) -> SharedTurns[str, str]:
    return SharedTurns(work, at_most(places), patience_s=patience_s)


async def test_alone_nobody_waits():
    work = Work(held=False)
    assert await turns_of(work).take("a") == "A"
    assert work.turns == [["a"]]


async def test_who_comes_during_a_turn_goes_with_the_next():
    work = Work()
    turns = turns_of(work)
    first = asyncio.create_task(turns.take("a"))
    await work.begun(1)
    others = [asyncio.create_task(turns.take(name)) for name in ("b", "c", "d")]
    await asyncio.sleep(0)
    assert work.turns == [["a"]]
    work.gates[0].set()
    await work.begun(2)
    work.gates[1].set()
    assert await asyncio.gather(first, *others) == ["A", "B", "C", "D"]
    assert work.turns == [["a"], ["b", "c", "d"]]


async def test_who_does_not_fit_keeps_the_order_for_the_turn_after():
    work = Work()
    turns = turns_of(work, places=2)
    tasks = [asyncio.create_task(turns.take("a"))]
    await work.begun(1)
    tasks += [asyncio.create_task(turns.take(name)) for name in ("b", "big", "c", "d")]
    await asyncio.sleep(0)
    work.held = False
    work.gates[0].set()
    await asyncio.gather(*tasks)
    assert work.turns == [["a"], ["b", "c"], ["big"], ["d"]]


async def test_the_error_of_one_is_nobody_elses():
    work = Work(held=False)
    turns = turns_of(work)
    good, bad = await asyncio.gather(turns.take("a"), turns.take("bad"), return_exceptions=True)
    assert good == "A"
    assert isinstance(bad, KeyError)


async def test_what_the_work_raises_is_everybodys():
    async def broken(_items: Sequence[str]) -> Sequence[str | Exception]:
        raise OSError("gone")

    turns: SharedTurns[str, str] = SharedTurns(broken, at_most(9), patience_s=LONG_S)
    found = await asyncio.gather(turns.take("a"), turns.take("b"), return_exceptions=True)
    assert [type(one) for one in found] == [OSError, OSError]
    with pytest.raises(OSError, match="gone"):
        await turns.take("c")


async def test_who_goes_away_before_his_turn_is_not_in_it():
    work = Work()
    turns = turns_of(work)
    first = asyncio.create_task(turns.take("a"))
    await work.begun(1)
    gone, stays = asyncio.create_task(turns.take("b")), asyncio.create_task(turns.take("c"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    work.held = False
    work.gates[0].set()
    assert await asyncio.gather(first, stays) == ["A", "C"]
    assert work.turns == [["a"], ["c"]]


async def test_who_goes_away_during_his_turn_does_not_end_it():
    work = Work()
    turns = turns_of(work)
    gone = asyncio.create_task(turns.take("a"))
    await work.begun(1)
    gone.cancel()
    stays = asyncio.create_task(turns.take("b"))
    await asyncio.sleep(0)
    assert work.turns == [["a"]]
    work.held = False
    work.gates[0].set()
    assert await stays == "B"


async def test_a_turn_that_does_not_end_holds_up_nobody_for_long():
    work = Work()
    turns = turns_of(work, patience_s=0.01)
    tasks = []
    for number in range(MOST_TURNS):
        tasks.append(asyncio.create_task(turns.take(f"n{number}")))
        await work.begun(number + 1)
    tasks.append(asyncio.create_task(turns.take("last")))
    work.held = False
    work.gates[3].set()
    assert await asyncio.wait_for(tasks[-1], LONG_S) == "LAST"
    assert work.at_once == MOST_TURNS
    for gate in work.gates:
        gate.set()
    assert len(await asyncio.gather(*tasks)) == MOST_TURNS + 1
