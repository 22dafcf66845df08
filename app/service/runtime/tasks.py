"""Tasks that outlast a request, and work that is repeated for as long as the process runs."""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from app.domain.errors import NotSentError, QuotaError
from app.service.ports.metrics import AlterationMetrics

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Tasks(Protocol):
    """Runs what must not end with the request that began it."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, whatever becomes of the caller; return the result to who still waits.

        Raises:
            NotSentError: The service is stopping.
        """
        ...

    def watch(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Run in the background; a stop does not wait for it, recovery takes over."""
        ...


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
        if self._draining:
            work.close()
            raise NotSentError("The service is stopping; nothing was sent.", code="stopping")
        return await asyncio.shield(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run in the background."""
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
        """Say what went wrong that nobody has thought of: the caller may have gone."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, QuotaError):
            logger.error("a fault in an alteration", exc_info=error)

    def refuse_new(self) -> None:
        """Take no further alteration."""
        self._draining = True

    async def drain(self, within_s: float) -> int:
        """Wait for the running ones, and what they begin; return how many are still running."""
        self.refuse_new()
        deadline = time.monotonic() + within_s
        while self._tasks and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)
        for task in self._watching:
            task.cancel()
        return len(self._tasks)


class SessionTasks:
    """Runs tasks among those of the application, and knows when the last of its own has ended."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See ``Tasks``."""
        try:
            return await self._tasks.run(self._held(work))
        except NotSentError:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
            raise

    def watch(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """See ``Tasks``; what begins it may end before its first step."""
        task = self._tasks.watch(work)
        self._has_begun()
        task.add_done_callback(self._has_ended)
        return task

    async def quiet(self) -> None:
        """Wait until none is running."""
        await self._quiet.wait()

    async def _held(self, work: Coroutine[Any, Any, T]) -> T:
        self._has_begun()
        try:
            return await work
        finally:
            self._has_ended()

    def _has_begun(self) -> None:
        self._running += 1
        self._quiet.clear()

    def _has_ended(self, _: object = None) -> None:
        self._running -= 1
        if not self._running:
            self._quiet.set()


async def run_forever(
    what: str, work: Callable[[], Awaitable[object]], *, pause_s: float, logger: logging.Logger
) -> None:
    """Work until cancelled; what fails is tried again in the next round.

    It is logged, but for a failure that is the same as that of the round before.

    Args:
        what: Names a round in the log.
        work: One round.
        pause_s: Between two rounds, in seconds.
        logger: Of the module whose work it is.
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


INTERVAL_S: Final = 6 * 3600.0
"""How often missing partitions are made, in seconds; three months are made ahead."""

_AFTER_FAILURE_S: Final = 60.0


class PartitionKeeper:
    """Makes partitions at the start and at intervals.

    Args:
        ensure: Makes what is missing and returns how many were.
        months_ahead: Counts the months after the present one that have a partition.
        metrics: Where that is reported, also when nothing could be made.
    """

    def __init__(
        self,
        ensure: Callable[[], Awaitable[int]],
        months_ahead: Callable[[], Awaitable[int]],
        metrics: AlterationMetrics,
    ) -> None:
        self._ensure = ensure
        self._months_ahead = months_ahead
        self._metrics = metrics

    async def run(self) -> None:
        """Keep partitions ahead until cancelled."""
        while True:
            pause_s = await self._maintain()
            await self._tell()
            await asyncio.sleep(pause_s)

    async def _tell(self) -> None:
        try:
            self._metrics.partitions_reach(await self._months_ahead())
        except QuotaError as error:
            logger.warning("partitions of the audit log were not counted: %s", error.detail)
        except Exception:  # the outermost boundary of this task, which must not end
            logger.exception("partitions of the audit log were not counted")

    async def _maintain(self) -> float:
        """Return how long to wait until the next time, in seconds."""
        try:
            made = await self._ensure()
        except QuotaError as error:
            logger.warning("partitions of the audit log were not made: %s", error.detail)
            return _AFTER_FAILURE_S
        except Exception:  # the outermost boundary of this task, which must not end
            logger.exception("partitions of the audit log were not made")
            return _AFTER_FAILURE_S
        if made:
            logger.info("made %d partitions of the audit log", made)
        return INTERVAL_S
