"""The newest answer to a costly question, cached with its age, asked for by one task at a time.

Ages are taken from ``time.monotonic``: uvloop's own clock stands still within a millisecond, so
that what was asked before a call could pass for asked at the call.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Asked(Generic[T]):
    """A question in flight, and when it was begun."""

    begun_at: float
    task: asyncio.Task[T]


@dataclass(frozen=True, slots=True)
class _Answered(Generic[T]):
    """An answer, and when it was begun to be asked for."""

    begun_at: float
    answer: T


class Cache(Generic[T]):
    """Shares one question among all who may take its answer.

    The age of an answer counts from the start of its question. No caller gets an answer whose
    question was begun earlier than the caller's limit allows; with a limit of 0: before the call.

    Args:
        ask: The question.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
        self._in_flight: _Asked[T] | None = None
        self._answered: _Answered[T] | None = None
        self._not_before = float("-inf")

    def get_cached(self, max_age_s: float) -> tuple[T, float] | None:
        """Return the cached answer and its age in seconds; null where it is too old."""
        answered = self._answered
        if answered is None:
            return None
        begun_at = answered.begun_at
        age_s = time.monotonic() - begun_at
        if age_s > max_age_s or begun_at < self._not_before:
            return None
        return answered.answer, age_s

    async def get(self, max_age_s: float) -> tuple[T, float]:
        """Return an answer and its age in seconds, asking only when none is young enough.

        Raises whatever the question raises.
        """
        earliest = max(time.monotonic() - max_age_s, self._not_before)
        while True:
            answered = self._answered
            if answered is not None and answered.begun_at >= earliest:
                return answered.answer, time.monotonic() - answered.begun_at
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
        if not task.cancelled() and task.exception() is None and asked is not None:
            self._answered = _Answered(asked.begun_at, task.result())
