"""Dependencies that are slow or down: one question for all who ask, a breaker, readiness."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from app.domain.errors import NotSentError, QuotaError
from app.service.ports.audit_log import KeyTakenError
from app.service.ports.metrics import BreakerState
from app.service.runtime.clock import USUAL

T = TypeVar("T")


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
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
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
        if not task.cancelled() and task.exception() is None:
            self._answered = asked


FAILURES: Final = 5
"""So many failures in a row open it."""

PROBE_EVERY_S: Final = 2.0
"""While it is open one attempt passes in this time; its success closes it."""


def _watch_nothing(_: BreakerState) -> None:
    """Tell nobody."""


class CircuitBreaker:
    """Stands before a dependency. A ``NotSentError`` is a failure, any other answer a success.

    Args:
        code: Of the problem that is answered while it is open.
        detail: A sentence that says what is down and that nothing was sent.
        watch: Called with each new state.
        now: A clock in seconds that never goes back.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        watch: Callable[[BreakerState], None] = _watch_nothing,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._code = code
        self._detail = detail
        self._watch = watch
        self._now = now
        self._failures = 0
        self._next_probe = math.inf
        watch(BreakerState.CLOSED)

    @property
    def state(self) -> BreakerState:
        """Closed lets everything pass, open nothing but probes."""
        return BreakerState.CLOSED if self._next_probe == math.inf else BreakerState.OPEN

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Let the block use the dependency, and learn from how it ends.

        What is cancelled, and what is a fault of this service, teaches nothing.

        Raises:
            NotSentError: It is open, and no probe is due.
        """
        self._admit()
        try:
            yield
        except NotSentError:
            self._count_failure()
            raise
        except (QuotaError, KeyTakenError):
            self._count_success()
            raise
        self._count_success()

    def _admit(self) -> None:
        if self.state is BreakerState.CLOSED:
            return
        wait_s = self._next_probe - self._now()
        if wait_s > 0:
            raise NotSentError(self._detail, code=self._code, retry_after_s=wait_s)
        self._next_probe = self._now() + PROBE_EVERY_S

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES and self.state is BreakerState.CLOSED:
            self._next_probe = self._now() + PROBE_EVERY_S
            self._watch(BreakerState.OPEN)

    def _count_success(self) -> None:
        self._failures = 0
        if self.state is BreakerState.OPEN:
            self._next_probe = math.inf
            self._watch(BreakerState.CLOSED)


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
