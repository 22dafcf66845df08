"""Readiness: what this process needs that is slow or down now."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from app.domain.errors import NotSentError, QuotaError
from app.service.runtime.clock import USUAL
from app.service.runtime.tasks import Cache

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
