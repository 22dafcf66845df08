"""Group commit: alterations that arrive while one is in flight share the next request.

Alone nobody waits: the request in flight is the timer. A broker forwards alterations to the
controller one at a time, each for as long as the metadata log lingers: about 27 ms. One request of
many entities takes as long as that of a single entity.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, encoded_bytes
from app.service.ports.brokers import AlterAnswer, ClientQuotaAdmin
from app.service.runtime.clock import boot_time

Item = TypeVar("Item")
Done = TypeVar("Done")

MAX_BATCHES: Final = 8
"""How many batches may be in flight at once, where the first do not end."""


@dataclass(eq=False, slots=True)
class _PendingItem(Generic[Item, Done]):
    """An item that waits for a batch or is in a batch."""

    item: Item
    done: "asyncio.Future[Done]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


def admit_all() -> Callable[[object], bool]:
    """Let any number of items share a batch."""
    return lambda _: True


@dataclass(eq=False)
class Batcher(Generic[Item, Done]):
    """Does the work of many callers in batches, one after the other.

    Args:
        work: Does a batch; returns for each item the result or the error of its caller. What it
            raises is the error of every caller.
        admits: Starts a batch; its result is asked of each item in order whether it fits in with
            those before it. The first item goes in any case.
        max_batch_wait_s: A batch that takes longer holds up nobody else, in seconds.
    """

    work: Callable[[Sequence[Item]], Awaitable[Sequence[Done | Exception]]]
    admits: Callable[[], Callable[[Item], bool]] = admit_all
    max_batch_wait_s: float = field(kw_only=True)
    _waiting: list[_PendingItem[Item, Done]] = field(default_factory=list, init=False)
    _in_flight: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _blocking: asyncio.Task[None] | None = field(default=None, init=False)

    async def submit(self, item: Item) -> Done:
        """Do this with others; return its result, or raise its error.

        A caller who goes away before the batch has begun leaves it; later the batch goes on.
        """
        pending: _PendingItem[Item, Done] = _PendingItem(item)
        self._waiting.append(pending)
        if self._blocking is None and len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._begin_unless_blocked)
        return await pending.done

    def _begin_unless_blocked(self) -> None:
        """Begin once all have come who were woken together: they are to stay together."""
        if self._blocking is None:
            self._begin()

    def _begin(self) -> None:
        """Begin a batch with all items that fit into it, in the order in which they came."""
        self._waiting = [pending for pending in self._waiting if not pending.done.cancelled()]
        if not self._waiting or len(self._in_flight) >= MAX_BATCHES:
            return
        fits = self.admits()
        items: list[_PendingItem[Item, Done]] = []
        later: list[_PendingItem[Item, Done]] = []
        for pending in self._waiting:
            admits = fits(pending.item) or not items
            (items if admits else later).append(pending)
        self._waiting = later
        batch = asyncio.create_task(self._run_batch(items), context=Context())
        self._in_flight.add(batch)
        self._blocking = batch
        impatient = asyncio.get_running_loop().call_later(
            self.max_batch_wait_s, self._unblock, batch
        )
        batch.add_done_callback(lambda _: impatient.cancel())
        batch.add_done_callback(self._end)

    def _end(self, batch: "asyncio.Task[None]") -> None:
        self._in_flight.discard(batch)
        if self._blocking is batch:
            self._unblock(batch)
        elif self._blocking is None:
            self._begin()

    def _unblock(self, batch: "asyncio.Task[None]") -> None:
        if self._blocking is batch:
            self._blocking = None
            self._begin()

    async def _run_batch(self, items: Sequence[_PendingItem[Item, Done]]) -> None:
        pairs: Sequence[tuple[_PendingItem[Item, Done], Done | Exception]]
        try:
            done = await self.work([pending.item for pending in items])
            pairs = list(zip(items, done, strict=True))
        except asyncio.CancelledError:
            for pending in items:
                pending.done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where the caller waits
            pairs = [(pending, error) for pending in items]
        for pending, result in pairs:
            if pending.done.done():
                continue
            if isinstance(result, Exception):
                pending.done.set_exception(_own(result))
            else:
                pending.done.set_result(result)


def _own(error: Exception) -> Exception:
    """Copy an error for one caller: whoever raises or handles it changes it."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own


PATIENCE_S: Final = 1.0
"""A request without an answer for so long holds up nobody else."""


class BrokerBatchers(Generic[Item, Done]):
    """A batcher for each broker: who asks one waits for no other; null is the preferred broker."""

    def __init__(
        self,
        work: Callable[[int | None, Sequence[Item]], Awaitable[Sequence[Done | Exception]]],
        admits: Callable[[], Callable[[Item], bool]] = admit_all,
    ) -> None:
        self._work = work
        self._admits = admits
        self._batchers: dict[int | None, Batcher[Item, Done]] = {}

    def submit(self, broker_id: int | None, item: Item) -> Awaitable[Done]:
        """Do this with others who ask the same broker; see ``Batcher``."""
        batcher = self._batchers.get(broker_id)
        if batcher is None:
            work = partial(self._work, broker_id)
            batcher = Batcher(work, self._admits, max_batch_wait_s=PATIENCE_S)
            self._batchers[broker_id] = batcher
        return batcher.submit(item)


@dataclass(eq=False, slots=True)
class _Turn:
    """A caller's part in a group."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class AlterTurns:
    """Lets callers begin in groups, so that a group shares a barrier and a request to the broker.

    A broker passes one request at a time on to the controller: a barrier waits there behind the
    alteration in flight, and who passed it before the others would alter alone. The next group
    begins when all of the last one have ended, or after ``PATIENCE_S``.
    """

    def __init__(self) -> None:
        self._groups = BrokerBatchers(self._run_group)

    @asynccontextmanager
    async def turn(self, broker_id: int | None) -> AsyncIterator[None]:
        """Wait until the group begins; its end waits for the end of the block."""
        turn = _Turn()
        in_group = asyncio.ensure_future(self._groups.submit(broker_id, turn))
        try:
            await turn.begun.wait()
            yield
        finally:
            turn.ended.set()
            in_group.cancel()

    async def _run_group(self, _: int | None, turns: Sequence[_Turn]) -> Sequence[None]:
        for turn in turns:
            turn.begun.set()
        for turn in turns:
            await turn.ended.wait()
        return [None] * len(turns)


MAX_SHARED_ENTITIES: Final = 500
"""A request of more entities goes by itself: it is its own group."""


@dataclass(frozen=True, slots=True)
class _BatchItem:
    """What one caller sends, and until when by ``boot_time``."""

    alterations: Sequence[ClientQuotaAlteration]
    send_by: float


class AlterBatcher:
    """Sends alterations whose intents are committed; all of a request get its one answer.

    Source of the bounds: ``QuorumController.MAX_RECORDS_PER_USER_OP``; the controller refuses a
    request beyond them as a whole, so a neighbour's size must not count.
    """

    def __init__(self, admin: ClientQuotaAdmin) -> None:
        self._admin = admin
        self._batchers = BrokerBatchers(self._send, _AlterBatch)

    async def send(
        self, alterations: Sequence[ClientQuotaAlteration], *, broker_id: int | None, send_by: float
    ) -> AlterAnswer:
        """Alter, in one request with whoever else is waiting; the answer has their verdicts too.

        Args:
            alterations: Of entities that nobody else alters meanwhile.
            broker_id: The broker to send through; null picks one.
            send_by: Until when it may be handed over, by ``boot_time``.

        Raises:
            NotSentError: Not one byte was handed to a socket, or it was too late for that.
            QuotaError: As ``ClientQuotaAdmin.alter_client_quotas``.
        """
        return await self._batchers.submit(broker_id, _BatchItem(alterations, send_by))

    async def _send(
        self, broker_id: int | None, items: Sequence[_BatchItem]
    ) -> Sequence[AlterAnswer | Exception]:
        in_time = _in_time(items)
        while in_time:
            try:
                answer = await self._admin.alter_client_quotas(
                    [each for item in in_time for each in item.alterations],
                    validate_only=False,
                    broker_id=broker_id,
                    send_by=min(item.send_by for item in in_time),
                )
            except NotSentError:
                before, in_time = in_time, _in_time(in_time)
                if len(in_time) == len(before):
                    raise  # it was not for lack of time
            else:
                sent = set(map(id, in_time))
                return [answer if id(item) in sent else _too_late() for item in items]
        return [_too_late() for _ in items]


def _in_time(items: Sequence[_BatchItem]) -> list[_BatchItem]:
    now = boot_time()
    return [item for item in items if item.send_by >= now]


class _AlterBatch:
    """One request while it fills."""

    def __init__(self) -> None:
        self._entities: set[ClientQuotaEntity] = set()
        self._changes = 0
        self._bytes = 0

    def __call__(self, item: _BatchItem) -> bool:
        """Take one more in, if the controller takes them all and no entity is there twice."""
        entities = {alteration.entity for alteration in item.alterations}
        changes = self._changes + sum(len(alteration.ops) for alteration in item.alterations)
        if len(entities) > MAX_SHARED_ENTITIES:
            size = MAX_ENCODED_BYTES + 1
        else:
            size = self._bytes + sum(map(encoded_bytes, item.alterations))
        fits = (
            changes <= MAX_CHANGES
            and size <= MAX_ENCODED_BYTES
            and self._entities.isdisjoint(entities)
        )
        if fits or not self._entities:
            self._changes, self._bytes = changes, size
            self._entities |= entities
        return fits


def _too_late() -> NotSentError:
    return NotSentError("Not sent: it was too late after the intent.")
