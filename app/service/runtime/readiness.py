"""Readiness: what this process needs that is slow or down now."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from app.domain.errors import NotSentError, QuotaError
from app.service.runtime.clock import USUAL, Patience
from app.service.runtime.tasks import Cache

CHECK_TTL_S: Final = 2.0
"""How long a check is believed."""

SOON_S: Final = 0.5
"""How long the check of one of several clusters is waited for: none holds up what is told of the
others."""

STANDS_S: Final = 10.0
"""How long its answer stands where the next one is late: a busy broker is not one that is down."""

_UNREACHABLE: Final = "cluster-unreachable"

Check = Callable[[], Awaitable[str | None]]
"""Returns what is wrong, or null; a ``QuotaError`` says it as well."""


class _LastingCheck:
    """A check that may take longer than whoever asks for it waits."""

    def __init__(self, check: Check, patience: Patience) -> None:
        self._check = check
        self._patience = patience
        self._cache = Cache(self._ask)
        self._answer: str | None = None
        self._answered_at = float("-inf")

    async def problem(self, within_s: float) -> str | None:
        """Return what is wrong, or null; where that is not known in time, what it was before."""
        try:
            async with asyncio.timeout(within_s):
                problem, _ = await self._cache.get(CHECK_TTL_S)
                return problem
        except TimeoutError:
            stands = time.monotonic() - self._answered_at <= STANDS_S
            return self._answer if stands else _silent(within_s)

    async def _ask(self) -> str | None:
        self._answer = await _problem(self._check, self._patience.broker_answer_s)
        self._answered_at = time.monotonic()
        return self._answer


class Readiness:
    """Runs the checks of the dependencies, each at most once in ``CHECK_TTL_S``.

    Args:
        reading: What reads need, by the dependency's name.
        writing: What alterations need beyond that.
        refusals: What costs nothing to ask, so that it is asked each time, by the dependency's
            name; a ``QuotaError`` refuses.
        patience: How long a check may take, and how long it is waited for.
    """

    def __init__(
        self,
        reading: Mapping[str, Check],
        writing: Mapping[str, Check],
        *,
        refusals: Mapping[str, Callable[[], None]] | None = None,
        patience: Patience = USUAL,
    ) -> None:
        self._reading, self._writing = (
            {name: _LastingCheck(check, patience) for name, check in checks.items()}
            for checks in (reading, writing)
        )
        self._refusals = refusals or {}
        self._check_s = patience.check_s
        self.draining = False

    async def problems(
        self, *, for_write: bool, within_s: float | None = None
    ) -> Mapping[str, str]:
        """Return what is not ready, by dependency; empty means ready.

        Args:
            for_write: Look at what alterations need, too.
            within_s: How long a check is waited for, in seconds; null is ``Patience.check_s``.
        """
        if self.draining:
            return {"service": "The service is stopping."}
        within_s = self._check_s if within_s is None else within_s
        checks = {**self._reading, **(self._writing if for_write else {})}
        found = await asyncio.gather(*(check.problem(within_s) for check in checks.values()))
        problems = {name: problem for name, problem in zip(checks, found, strict=True) if problem}
        for name, refuse in self._refusals.items():
            try:
                refuse()
            except QuotaError as error:
                problems[name] = error.detail
        return problems


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
        return _silent(within_s)
    except QuotaError as error:
        return error.detail


def _silent(within_s: float) -> str:
    return f"No answer within {within_s:g} s."
