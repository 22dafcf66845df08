"""Work beside requests: tasks that outlast one, repeated work, threads; and failpoints."""

import asyncio
import gc
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

from app.domain.errors import NotSentError, QuotaError, Retry, TooManyRequestsError
from app.domain.validation import MAX_CHANGES
from app.metrics import AlterationMetrics, Phase

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger(__name__)


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


Tasks = AlterationTasks | SessionTasks
"""Run what must not end with the request that began it."""


async def run_forever(
    what: str, work: Callable[[], Awaitable[object]], *, pause_s: float, logger: logging.Logger
) -> None:
    """Work until cancelled; what fails is tried again in the next round.

    It is logged, but for a failure that is the same as that of the round before.
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
        await asyncio.sleep(pause_s)


@contextmanager
def timed(metrics: AlterationMetrics, phase: Phase) -> Iterator[None]:
    """Note how long the block takes, however it ends."""
    began = time.perf_counter()
    try:
        yield
    finally:
        metrics.phase_took(phase, time.perf_counter() - began)


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


class LargeRequests:
    """Lets a principal have as many items in progress as one request may have.

    Requests of fewer than ``MANY`` pass uncounted, and so does one that has no other beside it.
    """

    def __init__(self) -> None:
        self._items: dict[str, int] = {}

    @contextmanager
    def work(self, principal: str, number: int) -> Iterator[None]:
        """Count the items of a large request until the block ends.

        Raises:
            TooManyRequestsError: The principal has enough in progress.
        """
        if number < MANY:
            yield
            return
        others = self._items.get(principal, 0)
        if others and others + number > MAX_CHANGES:
            detail = f"{principal} has {others} entities in progress; at most {MAX_CHANGES}."
            raise TooManyRequestsError(
                detail, code="rate-limited", retry=Retry.SAFE, retry_after_s=1
            )
        self._items[principal] = others + number
        try:
            yield
        finally:
            self._items[principal] -= number
            if not self._items[principal]:
                del self._items[principal]


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


POINTS: Final = (
    "before_intent",
    "intent_begun",
    "after_intent",
    "before_send",
    "before_last_check",
    "after_last_check",
    "handed_over",
    "after_answer",
    "after_conclusion",
    "recovery_before_record",
    "recovery_after_record",
)
"""Every failpoint, in the order in which an alteration and its recovery pass them."""

ACTIONS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class Failpoints:
    """Named steps of an alteration, of which at most one is armed: where a test ends the process.

    They are always compiled in and armed only by ``QUOTAS_TEST_FAILPOINT`` in development mode, so
    that what is tested is what is shipped.

    Raises:
        ValueError: There is no such point or action.
    """

    armed: str | None = None
    action: str = "kill"

    def __post_init__(self) -> None:
        """Refuse what would never fire."""
        if (self.armed is not None and self.armed not in POINTS) or self.action not in ACTIONS:
            message = f"write one of {', '.join(POINTS)}, then :kill or :stop"
            raise ValueError(message)

    @classmethod
    def read(cls, text: str) -> "Failpoints":
        """Read ``after_intent:kill``; an empty text arms nothing."""
        point, _, action = text.partition(":")
        return cls(point or None, action or "kill")

    def reach(self, point: str) -> None:
        """Pass a point; where it is armed, this process is killed or frozen right here."""
        if point == self.armed:
            os.kill(os.getpid(), ACTIONS[self.action])
