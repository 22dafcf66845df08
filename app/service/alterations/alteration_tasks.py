"""Alterations belong to the application: a client that hangs up does not cut them."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from app.domain.errors import NotSentError, QuotaError

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
