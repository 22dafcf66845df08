"""Work that is not one request's own: what outlasts it, what many share, what leaves the loop."""

import asyncio
import gc
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Generic, ParamSpec, TypeVar

from app.domain.errors import NotSentError, QuotaError

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
Done = TypeVar("Done")
logger = logging.getLogger(__name__)


CLUSTER: Final[ContextVar[str | None]] = ContextVar("cluster", default=None)
"""The name of the cluster that something is done for; log lines have it."""


def nobodys_context() -> Context:
    """Return a context for what is done for no request, of the same cluster."""
    context = Context()
    context.run(CLUSTER.set, CLUSTER.get())
    return context


class AlterationTasks:
    """Runs alterations as tasks of their own and waits for them when the service stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: set[asyncio.Task[Any]] = set()
        self._draining = False

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, whatever becomes of the caller; return the result to who still waits.

        Raises:
            NotSentError: The service is stopping.
        """
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run in the background.

        Raises:
            NotSentError: The service is stopping.
        """
        if self._draining:
            work.close()
            raise NotSentError("The service is stopping; nothing was sent.", code="stopping")
        return self.start(work)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run in the background, even what is left to do while the service is stopping."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def watch(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Run in the background; a stop does not wait for it, recovery takes over."""
        task = asyncio.create_task(work)
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        """Log an unexpected error: the caller may have gone."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, QuotaError):
            logger.error("a fault in an alteration", exc_info=error)

    def refuse_new(self) -> None:
        """Take no further alteration."""
        self._draining = True

    async def drain(self, within_s: float) -> int:
        """Wait for running tasks, and what they begin; return how many are still running."""
        self.refuse_new()
        deadline = time.monotonic() + within_s
        while self._tasks and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)
        for task in self._watching:
            task.cancel()
        return len(self._tasks)


class SessionTasks:
    """Runs tasks among those of the application, and waits for its own."""

    def __init__(self, tasks: AlterationTasks) -> None:
        self._tasks = tasks
        self._own: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See ``AlterationTasks``."""
        return await asyncio.shield(self._track(self._tasks.begin(work)))

    def watch(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """See ``AlterationTasks``."""
        return self._track(self._tasks.watch(work))

    async def quiet(self) -> None:
        """Wait until none is running."""
        while self._own:
            await asyncio.wait(self._own)

    def _track(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task


class Priority:
    """Lets those go first for whom others wait; the event loop itself knows no order.

    Args:
        longest_s: How long those who defer wait for them, in seconds.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._going: set[object] = set()
        self._free = asyncio.Event()

    @contextmanager
    def first(self) -> Iterator[Callable[[], None]]:
        """Go first, to the end of the block or the call of what it yields, whichever is earlier."""
        going = object()

        def gone() -> None:
            self._going.discard(going)
            # What has just begun goes on to its first wait before the others are woken.
            asyncio.get_running_loop().call_soon(self._wake)

        self._going.add(going)
        self._free.clear()
        try:
            yield gone
        finally:
            gone()

    async def defer(self) -> None:
        """Wait until nobody goes first."""
        if self._going:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._longest_s):
                    await self._free.wait()

    def _wake(self) -> None:
        if not self._going:
            self._free.set()


Tasks = AlterationTasks | SessionTasks
"""Run what must not end with the request that began it."""


async def run_forever(
    what: str,
    work: Callable[[], Awaitable[object]],
    *,
    pause_s: float,
    logger: logging.Logger,
    together: bool = False,
) -> None:
    """Work until cancelled; what fails is tried again in the next round.

    It is logged, but for a failure that is the same as that of the round before.

    Rounds that are done ``together`` begin when the clock has a multiple of the pause: those of all
    clusters are woken at once, and what each of them asks is merged (``merge_calls``).
    """
    logged: str | None = None
    while True:
        try:
            await work()
            logged = None
        except QuotaError as error:
            if error.detail != logged:
                logger.warning("%s failed: %s", what, error.detail)
            logged = error.detail
        except Exception:  # the outermost boundary of this task: one bad row must not end it
            logger.exception("%s failed", what)
        await asyncio.sleep(_to_next_round_s(pause_s) if together else pause_s)


def _to_next_round_s(pause_s: float) -> float:
    """Return how long to wait until the clock has a multiple of the pause.

    Who was woken a little before it does not begin a second round at once.
    """
    left_s = pause_s - asyncio.get_running_loop().time() % pause_s
    return left_s if left_s > pause_s / 100 else left_s + pause_s


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
        refresh_after_s: Whoever gets an answer that is older lets it be asked for again, and does
            not wait for that; in seconds.
    """

    def __init__(
        self,
        ask: Callable[[], Coroutine[Any, Any, T]],
        *,
        keeps_answer: bool = True,
        refresh_after_s: float = math.inf,
    ) -> None:
        self._ask = ask
        self._refresh_after_s = refresh_after_s
        self._keeps_answer = keeps_answer
        self._in_flight: _Asked[T] | None = None
        self._answered: _Asked[T] | None = None
        self._not_before = float("-inf")

    async def get(self, max_age_s: float) -> tuple[T, float]:
        """Return an answer and its age in seconds, asking only when none is young enough.

        Raises whatever the question raises, and ``NotSentError`` where it is closed meanwhile.
        """
        earliest = max(time.monotonic() - max_age_s, self._not_before)
        while True:
            answered = self._answered
            if answered is not None and answered.begun_at >= earliest:
                age_s = time.monotonic() - answered.begun_at
                if age_s > self._refresh_after_s:
                    self.refresh()
                return answered.task.result(), age_s
            asked = self.refresh()
            if asked.begun_at >= earliest:
                answer = await result_of(asked.task)
                return answer, time.monotonic() - asked.begun_at
            await asyncio.wait({asked.task})

    def refresh(self) -> _Asked[T]:
        """Ask, unless a question is in flight, and do not wait."""
        if self._in_flight is None:
            begun_at = time.monotonic()
            task = asyncio.create_task(self._ask(), context=nobodys_context())
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


async def result_of(task: "asyncio.Task[T]") -> T:
    """Wait for a shared question; that it is not asked any more cancels nobody who waits.

    Raises:
        NotSentError: It is not asked any more.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if not task.cancelled() or (waiting is not None and waiting.cancelling()):
            raise
    detail = "This cluster, or the service, is stopping; nothing was sent."
    raise NotSentError(detail, code="stopping")


MAX_BATCHES: Final = 8
"""How many batches may be in flight at once, where the first do not end."""


@dataclass(eq=False, slots=True)
class _PendingItem(Generic[Item, Done]):
    """An item that waits for a batch or is in a batch."""

    item: Item
    done: "asyncio.Future[Done]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


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
    admits: Callable[[], Callable[[Item], bool]]
    max_batch_wait_s: float
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
        batch = asyncio.create_task(self._run_batch(items), context=nobodys_context())
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


_MERGED_S: Final = 1.0
"""A batch of calls that takes longer holds up no other, in seconds."""


def merge_calls(
    work: Callable[[Sequence[Item]], Awaitable[Sequence[Done | Exception]]],
) -> Batcher[Item, Done]:
    """Return what makes one call of all that come together, however many."""
    return Batcher(work, lambda: lambda _: True, _MERGED_S)


def _own(error: Exception) -> Exception:
    """Copy an error for one caller: raising and handling an error changes it."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own


MANY: Final = 200
"""From so many items on; fewer take a millisecond or two, no more than a thread costs."""


async def off_loop(number: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do pure work, in a thread where it is about many items.

    Args:
        number: Of items that the work grows with.
        work: What to do; it touches nothing that others change.
        args: For the work.
        kwargs: For the work.
    """
    if number < MANY:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


LASTING: Final = 200_000
"""A block that leaves so many objects behind has built something that lasts."""

_collecting: Final = Lock()
_paused = 0


@contextmanager
def pause_gc() -> Iterator[None]:
    """Build many objects, none of them in a cycle, without looking for cycles among them.

    The collector is the process's: it looks again when the last block of all threads has ended, but
    not at what lasts. That is freed like everything else when nobody refers to it any more.
    """
    global _paused  # noqa: PLW0603 - the collector is the process's
    with _collecting:
        _paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            _paused -= 1
            if not _paused:
                if gc.get_count()[0] >= LASTING:
                    gc.freeze()
                gc.enable()
