"""Turns that callers share: who comes while one is under way goes with the next, all together.

Alone nobody waits. It is the group commit of databases: the work under way is the timer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")

MOST_TURNS: Final = 8
"""How many turns may be under way at once, where the first ones do not end."""


@dataclass(eq=False, slots=True)
class _Seat(Generic[Item, Done]):
    """A caller who waits for a turn or is in one."""

    item: Item
    done: "asyncio.Future[Done]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class SharedTurns(Generic[Item, Done]):
    """Does the work of many callers together, one turn after the other.

    Args:
        work: Does a turn; gives for each item what its caller gets, or the error that he gets. What
            it raises is everybody's error.
        room: Opens the room of a turn, which is asked of each item in order whether it fits in with
            those before it; the first one goes in any case.
        patience_s: A turn that takes longer holds up nobody else.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Awaitable[Sequence[Done | Exception]]],
        room: Callable[[], Callable[[Item], bool]],
        *,
        patience_s: float,
    ) -> None:
        self._work = work
        self._room = room
        self._patience_s = patience_s
        self._waiting: list[_Seat[Item, Done]] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._blocking: asyncio.Task[None] | None = None

    async def take(self, item: Item) -> Done:
        """Do this with others; return what came of it, or raise it.

        A caller who goes away before his turn has begun leaves it; later the turn goes on.
        """
        seat: _Seat[Item, Done] = _Seat(item)
        self._waiting.append(seat)
        if self._blocking is None:
            self._begin()
        return await seat.done

    def _begin(self) -> None:
        """Begin a turn with all who fit into it, in the order in which they came."""
        self._waiting = [seat for seat in self._waiting if not seat.done.cancelled()]
        if not self._waiting or len(self._under_way) >= MOST_TURNS:
            return
        fits = self._room()
        seats: list[_Seat[Item, Done]] = []
        later: list[_Seat[Item, Done]] = []
        for seat in self._waiting:
            room = fits(seat.item) or not seats
            (seats if room else later).append(seat)
        self._waiting = later
        turn = asyncio.create_task(self._turn(seats), context=Context())
        self._under_way.add(turn)
        self._blocking = turn
        impatient = asyncio.get_running_loop().call_later(self._patience_s, self._unblock, turn)
        turn.add_done_callback(lambda _: impatient.cancel())
        turn.add_done_callback(self._end)

    def _end(self, turn: "asyncio.Task[None]") -> None:
        self._under_way.discard(turn)
        if self._blocking is turn:
            self._unblock(turn)
        elif self._blocking is None:
            self._begin()

    def _unblock(self, turn: "asyncio.Task[None]") -> None:
        if self._blocking is turn:
            self._blocking = None
            self._begin()

    async def _turn(self, seats: Sequence[_Seat[Item, Done]]) -> None:
        pairs: Sequence[tuple[_Seat[Item, Done], Done | Exception]]
        try:
            pairs = list(zip(seats, await self._work([one.item for one in seats]), strict=True))
        except asyncio.CancelledError:
            for seat in seats:
                seat.done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where the caller waits
            pairs = [(seat, _own(error)) for seat in seats]
        for seat, result in pairs:
            if seat.done.done():
                continue
            if isinstance(result, Exception):
                seat.done.set_exception(result)
            else:
                seat.done.set_result(result)


def _own(error: Exception) -> Exception:
    """Copy an error for one caller: whoever raises or handles it changes it."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own
