"""Tasks that hold a session: it is not closed under an alteration that runs in it."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

from app.domain.errors import NotSentError
from app.service.alterations.alteration_tasks import Tasks

T = TypeVar("T")


class HeldTasks:
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
