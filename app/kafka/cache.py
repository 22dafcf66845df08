"""The newest answer to a costly question, cached with its age, asked for by one task at a time.

Ages are taken from ``time.monotonic``: uvloop's own clock stands still within a millisecond, so
that what was asked before a call could pass for asked at the call.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_MAX_SHARE: Final = 2
"""How many times as often as without prefetching it may be asked."""

_PREFETCH_FACTOR: Final = 1.25
"""How many times as long as lately the question may take without making a caller wait."""

_DECAY: Final = 0.9
"""The factor by which the longest duration shrinks with each answer that took less."""


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
        self._took_s = 0.0
        self._longest_s = 0.0

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

    def prefetch(self, max_age_s: float, age_s: float) -> None:
        """Ask so early that the next caller with the same limit need not wait.

        It is asked at most twice as often as without that: never before half of the limit has
        passed. Where asking takes longer than that callers wait for what is left, and where it
        takes as long as the limit nothing is asked ahead. Not for those who waited for the answer
        themselves: one caller now and then would cause two questions each time.

        Args:
            max_age_s: What a caller allows.
            age_s: How old the answer is that it got.
        """
        earliest_s = max(max_age_s - self._longest_s * _PREFETCH_FACTOR, max_age_s / _MAX_SHARE)
        if age_s >= earliest_s and self._took_s < max_age_s:
            self.refresh()

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
            self._took_s = time.monotonic() - asked.begun_at
            self._longest_s = max(self._took_s, self._longest_s * _DECAY)
