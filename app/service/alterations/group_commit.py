"""Group commit: alterations that arrive while one is in flight share the next request.

Alone nobody waits: the request in flight is the timer. A broker forwards alterations to the
controller one at a time, each for as long as the metadata log lingers: about 27 ms. One request of
many entities takes as long as that of a single entity.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, encoded_bytes
from app.service.ports.brokers import AlterAnswer, ClientQuotaAdmin, EntityVerdict
from app.service.runtime.clock import boot_time

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


PATIENCE_S: Final = 1.0
"""A request without an answer for so long holds up nobody else."""

LARGEST_SHARING: Final = 500
"""A request of more entities goes by itself: it is its own group."""


@dataclass(frozen=True, slots=True)
class _Passenger:
    """What one caller sends, and until when by ``boot_time``."""

    alterations: Sequence[ClientQuotaAlteration]
    broker_id: int | None
    send_by: float


class SharedSending:
    """Sends alterations whose intents are committed; each caller gets his own verdicts.

    Source of the bounds: ``QuorumController.MAX_RECORDS_PER_USER_OP``; the controller refuses a
    request beyond them as a whole, so a neighbour's size must not count.
    """

    def __init__(self, admin: ClientQuotaAdmin) -> None:
        self._admin = admin
        self._turns = SharedTurns(self._send, _Request, patience_s=PATIENCE_S)

    async def send(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        broker_id: int | None,
        send_by: float,
    ) -> AlterAnswer:
        """Alter, in one request with whoever else is waiting.

        Args:
            alterations: Of entities that nobody else alters meanwhile.
            broker_id: The broker to send through; null picks one.
            send_by: Until when it may be handed over, by ``boot_time``.

        Raises:
            NotSentError: Not one byte was handed to a socket, or it was too late for that.
            QuotaError: As ``ClientQuotaAdmin.alter_client_quotas``.
        """
        return await self._turns.take(_Passenger(alterations, broker_id, send_by))

    async def _send(self, passengers: Sequence[_Passenger]) -> Sequence[AlterAnswer | Exception]:
        in_time = _in_time(passengers)
        while in_time:
            try:
                answer = await self._admin.alter_client_quotas(
                    [each for one in in_time for each in one.alterations],
                    validate_only=False,
                    broker_id=in_time[0].broker_id,
                    send_by=min(one.send_by for one in in_time),
                )
            except NotSentError:
                before, in_time = in_time, _in_time(in_time)
                if len(in_time) == len(before):
                    raise  # it was not for lack of time
            else:
                sent = set(map(id, in_time))
                return [
                    _part_of(answer, one) if id(one) in sent else _too_late() for one in passengers
                ]
        return [_too_late() for _ in passengers]


def _in_time(passengers: Sequence[_Passenger]) -> list[_Passenger]:
    now = boot_time()
    return [one for one in passengers if one.send_by >= now]


class _Request:
    """One request while it fills."""

    def __init__(self) -> None:
        self._brokers: set[int | None] = set()
        self._entities: set[ClientQuotaEntity] = set()
        self._changes = 0
        self._bytes = 0

    def __call__(self, passenger: _Passenger) -> bool:
        """Take one more in, if the controller takes them all and no entity is there twice."""
        entities = {one.entity for one in passenger.alterations}
        brokers = self._brokers | {passenger.broker_id}
        changes = self._changes + sum(len(one.ops) for one in passenger.alterations)
        if len(entities) > LARGEST_SHARING:
            size = MAX_ENCODED_BYTES + 1
        else:
            size = self._bytes + sum(map(encoded_bytes, passenger.alterations))
        fits = (
            len(brokers) == 1
            and changes <= MAX_CHANGES
            and size <= MAX_ENCODED_BYTES
            and self._entities.isdisjoint(entities)
        )
        if fits or not self._brokers:
            self._brokers, self._changes, self._bytes = brokers, changes, size
            self._entities |= entities
        return fits


class _LatePart:
    """One caller's part of an answer that is still listened for."""

    def __init__(self, late: Awaitable[AlterAnswer], passenger: _Passenger) -> None:
        self._late = late
        self._passenger = passenger

    def __await__(self) -> Generator[Any, None, AlterAnswer]:
        """Wait for it as the whole."""
        answer = yield from self._late.__await__()
        return _part_of(answer, self._passenger)


def _part_of(answer: AlterAnswer, passenger: _Passenger) -> AlterAnswer:
    verdicts: Mapping[ClientQuotaEntity, EntityVerdict] = {
        one.entity: answer.verdicts[one.entity] for one in passenger.alterations
    }
    late = None if answer.late is None else _LatePart(answer.late, passenger)
    return replace(answer, verdicts=verdicts, late=late)


def _too_late() -> NotSentError:
    return NotSentError("Not sent: it was too late after the intent.")
