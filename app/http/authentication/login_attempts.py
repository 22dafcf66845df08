"""How often a password may be wrong: so that nobody finds one by trying."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from app.http.errors import RateLimitedError
from app.http.rate_limits import network_of

MOST_FAILURES: Final = 5
"""So many wrong passwords one address may send for one user ..."""

WITHIN_S: Final = 60.0
"""... in so many seconds."""

MOST_REMEMBERED: Final = 10_000
"""So many pairs are remembered; the one that was not tried for longest is forgotten first."""


class LoginAttempts:
    """Counts failed logins for each user and address, in the memory of this process.

    An attempt counts as failed from its beginning on, until it has succeeded: many at once are no
    way around the limit.

    Args:
        count: Told that the limit was reached.
        now: A clock in seconds that never goes back.
    """

    def __init__(
        self,
        count: Callable[[], None] = lambda: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._now = now
        self._failures: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def begin(self, user: str, address: str) -> Callable[[], None]:
        """Count an attempt; return what takes that back, for one that did not fail.

        Raises:
            RateLimitedError: One too many; its ``retry_after_s`` says when there may be another.
        """
        now = self._now()
        failures = self._remembered((user, network_of(address)))
        while failures and failures[0] <= now - WITHIN_S:
            failures.popleft()
        if len(failures) >= MOST_FAILURES:
            self._count()
            raise too_many(failures[0] + WITHIN_S - now)
        failures.append(now)

        def take_back() -> None:
            if now in failures:
                failures.remove(now)

        return take_back

    def _remembered(self, pair: tuple[str, str]) -> deque[float]:
        failures = self._failures.setdefault(pair, deque())
        self._failures.move_to_end(pair)
        if len(self._failures) > MOST_REMEMBERED:
            self._failures.popitem(last=False)
        return failures


def too_many(wait_s: float) -> RateLimitedError:
    """Return the refusal of a login; there may be another in ``wait_s`` seconds."""
    detail = f"{MOST_FAILURES} logins of this user from this address failed within {WITHIN_S:g} s."
    return RateLimitedError(detail, retry_after_s=wait_s)
