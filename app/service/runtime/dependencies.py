"""Dependencies that are slow or down: shared questions and batches, readiness."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

from app.domain.errors import NotSentError, QuotaError
from app.service.runtime.clock import USUAL

T = TypeVar("T")
Item = TypeVar("Item")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class _Asked(Generic[T]):
    """A question, in flight or answered, and when it was begun."""

    begun_at: float
    task: asyncio.Task[T]


class Cache(Generic[T]):
    """The newest answer to a costly question, asked for by one task at a time.

    The age of an answer counts from the start of its question. No caller gets an answer whose
    question was begun earlier than the caller's limit allows; with a limit of 0: before the call.

    Ages are taken from ``time.monotonic``: uvloop's own clock stands still within a millisecond, so
    that what was asked before a call could pass for asked at the call.

    Args:
        ask: Asks the question.
        keeps_answer: Whether it is cached for later callers; else only those who wait share it.
    """

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, T]], *, keeps_answer: bool = True
    ) -> None:
        self._ask = ask
        self._keeps_answer = keeps_answer
        self._in_flight: _Asked[T] | None = None
        self._answered: _Asked[T] | None = None
        self._not_before = float("-inf")

    async def get(self, max_age_s: float) -> tuple[T, float]:
        """Return an answer and its age in seconds, asking only when none is young enough.

        Raises whatever the question raises.
        """
        earliest = max(time.monotonic() - max_age_s, self._not_before)
        while True:
            answered = self._answered
            if answered is not None and answered.begun_at >= earliest:
                return answered.task.result(), time.monotonic() - answered.begun_at
            asked = self.refresh()
            if asked.begun_at >= earliest:
                answer = await asyncio.shield(asked.task)
                return answer, time.monotonic() - asked.begun_at
            await asyncio.wait({asked.task})

    def refresh(self) -> _Asked[T]:
        """Ask, unless a question is in flight, and do not wait."""
        if self._in_flight is None:
            begun_at = time.monotonic()
            task = asyncio.create_task(self._ask(), context=Context())  # it is nobody's request
            self._in_flight = _Asked(begun_at, task)
            self._in_flight.task.add_done_callback(self._keep)
        return self._in_flight

    def invalidate(self) -> None:
        """Return no answer any more whose question was begun before now."""
        self._not_before = time.monotonic()

    async def close(self) -> None:
        """Stop asking."""
        if self._in_flight is not None:
            task = self._in_flight.task
            task.cancel()
            await asyncio.wait({task})

    def _keep(self, task: asyncio.Task[T]) -> None:
        asked, self._in_flight = self._in_flight, None
        if not task.cancelled() and task.exception() is None and self._keeps_answer:
            self._answered = asked


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
    """Copy an error for one caller: raising and handling an error changes it."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own


MAX_BATCH_WAIT_S: Final = 1.0
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
            batcher = Batcher(work, self._admits, max_batch_wait_s=MAX_BATCH_WAIT_S)
            self._batchers[broker_id] = batcher
        return batcher.submit(item)


CHECK_TTL_S: Final = 2.0
"""How long a check is believed."""

_UNREACHABLE: Final = "cluster-unreachable"

Check = Callable[[], Awaitable[str | None]]
"""Returns what is wrong, or null; a ``QuotaError`` says it as well."""


class Readiness:
    """Runs the checks of the dependencies, each at most once in ``CHECK_TTL_S``.

    Args:
        reading: What reads need, by the dependency's name.
        writing: What alterations need beyond that.
        within_s: How long a check may take, in seconds.
    """

    def __init__(
        self,
        reading: Mapping[str, Check],
        writing: Mapping[str, Check],
        *,
        within_s: float = USUAL.check_s,
    ) -> None:
        self._reading, self._writing = (
            {name: Cache(partial(_problem, check, within_s)) for name, check in checks.items()}
            for checks in (reading, writing)
        )
        self.draining = False

    async def problems(self, *, for_write: bool) -> Mapping[str, str]:
        """Return what is not ready, by dependency; empty means ready."""
        if self.draining:
            return {"service": "The service is stopping."}
        checks = {**self._reading, **(self._writing if for_write else {})}
        found = await asyncio.gather(*(check.get(CHECK_TTL_S) for check in checks.values()))
        return {name: problem for name, (problem, _) in zip(checks, found, strict=True) if problem}


def without_addresses(check: Check, number: Callable[[], int]) -> Check:
    """Let a check of the brokers say how many do not respond; where they are is in the log.

    Anybody may ask whether the service is ready, without a credential.
    """

    async def check_and_count() -> str | None:
        try:
            return await check()
        except NotSentError as error:
            reason = error.__cause__ if isinstance(error.__cause__, QuotaError) else error
            if reason.code != _UNREACHABLE:
                raise
            return f"None of the brokers responds ({number()} tried); the log says why."

    return check_and_count


async def _problem(check: Check, within_s: float) -> str | None:
    try:
        async with asyncio.timeout(within_s):
            return await check()
    except TimeoutError:
        return f"No answer within {within_s:g} s."
    except QuotaError as error:
        return error.detail
