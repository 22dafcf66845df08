"""How often a password may be wrong: so that nobody finds one by trying, or keeps others out."""

import hashlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NoReturn, Protocol

from app.http.errors import RateLimitedError
from app.http.rate_limits import network_of

MOST_FAILURES: Final = 5
"""So many wrong passwords one address may send for one user ..."""

WITHIN_S: Final = 60.0
"""... in so many seconds."""

MOST_OF_ADDRESS: Final = 100
"""So many one address may send for all users in that time."""

MOST_UNDER_WAY: Final = 8
"""So many logins of one address may be under way, of the 64 that there may be of all."""

MOST_REMEMBERED: Final = 10_000
"""So many pairs of user and address are counted. None is forgotten before its time: where there are
so many, users that are not among them cannot log in."""

Failures = OrderedDict[bytes, list[float]]
"""When they were, by digest, in the order of the last attempts."""

_DIGEST_BYTES: Final = 16
_SOON_S: Final = 1.0


class EndAttempt(Protocol):
    """Ends an attempt, once."""

    def __call__(self, *, has_failed: bool) -> None:
        """Note whether the login failed."""
        ...


class LoginAttempts:
    """Counts failed logins for each user and address, and for each address, in this process.

    An attempt counts as failed from its beginning on, until it has succeeded: concurrent attempts
    do not pass the limit. Names are not stored, only a keyed digest of each.

    Args:
        count: Called for each login over a limit.
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
        self._key = secrets.token_bytes(_DIGEST_BYTES)
        self._failures: Failures = OrderedDict()
        self._of_address: Failures = OrderedDict()
        self._under_way: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._failures)

    def begin(self, user: str, address: str) -> EndAttempt:
        """Count an attempt; return what ends it.

        Raises:
            RateLimitedError: One too many; its ``retry_after_s`` says when there may be another.
        """
        now, network = self._now(), network_of(address)
        self._forget(now)
        whole, pair = self._digest(network), self._digest(f"{network} {user}")
        if self._under_way[whole] >= MOST_UNDER_WAY:
            self._refuse(f"{MOST_UNDER_WAY} logins from this address are under way.", _SOON_S)
        failures = _recent(self._failures, pair, now)
        if len(failures) >= MOST_FAILURES:
            detail = f"{MOST_FAILURES} logins of this user from this address failed in a minute."
            self._refuse(detail, failures[0] + WITHIN_S - now)
        of_address = _recent(self._of_address, whole, now)
        if len(of_address) >= MOST_OF_ADDRESS:
            detail = f"{MOST_OF_ADDRESS} logins from this address failed in a minute."
            self._refuse(detail, of_address[0] + WITHIN_S - now)
        if pair not in self._failures and len(self._failures) >= MOST_REMEMBERED:
            self._refuse("Too many logins of other users failed within a minute.", WITHIN_S)
        _add(self._failures, pair, failures, now)
        _add(self._of_address, whole, of_address, now)
        self._under_way[whole] += 1

        def end(*, has_failed: bool) -> None:
            self._under_way[whole] -= 1
            if not self._under_way[whole]:
                del self._under_way[whole]
            if not has_failed:
                self._take_back(pair, whole, now)

        return end

    def _take_back(self, pair: bytes, whole: bytes, at: float) -> None:
        for counts, key in ((self._failures, pair), (self._of_address, whole)):
            times = counts.get(key)
            if times is not None and at in times:
                times.remove(at)
                if not times:
                    del counts[key]

    def _forget(self, now: float) -> None:
        """Forget failures that are over; counts are in the order of their last attempts."""
        for counts in (self._failures, self._of_address):
            while counts:
                oldest = next(iter(counts.values()))
                if oldest and oldest[-1] > now - WITHIN_S:
                    break
                counts.popitem(last=False)

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES, key=self._key).digest()

    def _refuse(self, detail: str, wait_s: float) -> NoReturn:
        self._count()
        raise RateLimitedError(detail, retry_after_s=wait_s)


def _recent(counts: Failures, key: bytes, now: float) -> list[float]:
    """Return when the failures were that still count."""
    times = counts.get(key, [])
    while times and times[0] <= now - WITHIN_S:
        times.pop(0)
    return times


def _add(counts: Failures, key: bytes, times: list[float], at: float) -> None:
    times.append(at)
    counts[key] = times
    counts.move_to_end(key)
