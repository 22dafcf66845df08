"""Large bodies wait for room: few are held at a time, and a caller's own one after the other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.http.errors import BodyTooLargeError, RequestTimeoutError
from app.http.large_bodies import AT_ONCE, SMALL_BYTES, LargeBodies
from app.http.limits import read_json_body

JSON = (b"content-type", b"application/json")


class Bodies:
    """Callers that hold room until they are told to go on."""

    def __init__(self) -> None:
        self.bodies = LargeBodies()
        self.inside: Counter[str] = Counter()
        self.go_on = asyncio.Event()

    async def hold(self, principal: str) -> None:
        async with self.bodies.room(principal):
            self.inside[principal] += 1
            await self.go_on.wait()
            self.inside[principal] -= 1

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_caller_holds_one_large_body_at_a_time_and_the_others_go_on():
    world = Bodies()
    tasks = [asyncio.create_task(world.hold("User:greedy")) for _ in range(100)]
    await world.settle()
    assert world.inside == {"User:greedy": 1}
    tasks.append(asyncio.create_task(world.hold("User:alice")))
    await world.settle()
    assert world.inside == {"User:greedy": 1, "User:alice": 1}
    world.go_on.set()
    await asyncio.gather(*tasks)
    assert not world.bodies._own


async def test_only_so_many_large_bodies_are_held_of_all_callers():
    world = Bodies()
    tasks = [asyncio.create_task(world.hold(f"User:{number}")) for number in range(20)]
    await world.settle()
    assert world.inside.total() == AT_ONCE
    world.go_on.set()
    await asyncio.gather(*tasks)
    assert not world.bodies._own


async def test_who_gives_up_waiting_takes_no_room():
    world = Bodies()
    tasks = [asyncio.create_task(world.hold("User:alice")) for _ in range(3)]
    await world.settle()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    world.go_on.set()
    await asyncio.wait_for(world.hold("User:alice"), 30)
    assert not world.bodies._own


class Room:
    """Room that is there or not, and who asked for it."""

    def __init__(self, *, there: bool = True) -> None:
        self.asked = 0
        self.held = 0
        self._there = there

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        self.asked += 1
        if not self._there:
            await asyncio.Event().wait()
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1

    def context(self) -> AbstractAsyncContextManager[None]:
        return self._open()


def request_of(*sizes: int) -> tuple[Request, list[int]]:
    """Return a request with pieces of these sizes, and the sizes that were not asked for yet."""
    waiting = list(sizes)

    async def receive() -> Message:
        size = waiting.pop(0)
        return {"type": "http.request", "body": b" " * size, "more_body": bool(waiting)}

    return Request({"type": "http", "method": "POST", "headers": [JSON]}, receive), waiting


@pytest.mark.parametrize(
    ("sizes", "asked"),
    [((0,), 0), ((SMALL_BYTES,), 0), ((SMALL_BYTES, 1), 1), ((SMALL_BYTES + 1, 5, 5), 1)],
)
async def test_only_a_large_body_asks_for_room_and_once(sizes: tuple[int, ...], asked: int):
    room = Room()
    request, _ = request_of(*sizes)
    assert len(await read_json_body(request, room.context())) == sum(sizes)
    assert (room.asked, room.held) == (asked, 0)


async def test_nothing_more_is_taken_in_while_there_is_no_room():
    request, waiting = request_of(SMALL_BYTES, 1, 1000)
    with pytest.raises(RequestTimeoutError):
        await read_json_body(request, Room(there=False).context(), deadline_s=0.01)
    assert waiting == [1000]


async def test_room_is_given_back_by_a_body_that_is_too_large():
    room = Room()
    request, _ = request_of(SMALL_BYTES + 1, SMALL_BYTES)
    with pytest.raises(BodyTooLargeError):
        await read_json_body(request, room.context(), limit=SMALL_BYTES + 2)
    assert (room.asked, room.held) == (1, 0)
