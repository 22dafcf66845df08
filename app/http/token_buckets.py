"""Token buckets: so many a second, more of them at once. Pure; the clock is passed in."""

from collections import OrderedDict
from typing import Final

MAX_BUCKETS: Final = 10_000
"""So many are remembered; the one that was not used for longest is forgotten first."""


class TokenBucket:
    """Full at first.

    Args:
        rate_per_s: Tokens a second, over 0.
        burst_s: How many seconds' worth of tokens it holds.
        now: The present time, in seconds of any clock that never goes back.
    """

    __slots__ = ("_at", "_burst", "_rate_per_s", "_tokens")

    def __init__(self, rate_per_s: float, burst_s: float, now: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = max(1.0, rate_per_s * burst_s)
        self._tokens = self._burst
        self._at = now

    def take(self, now: float) -> float:
        """Take a token and return 0, or return in how many seconds there will be one."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate_per_s)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate_per_s


class TokenBuckets:
    """A bucket for each name, in bounded memory.

    A name that was forgotten begins with a full bucket; so do 10,000 others before that.

    Args:
        rate_per_s: Tokens a second for each name; 0 for no limit.
        burst_s: How many seconds' worth a name may take at once.
        most: How many names are remembered.
    """

    def __init__(self, rate_per_s: float, burst_s: float, *, most: int = MAX_BUCKETS) -> None:
        self._rate_per_s = rate_per_s
        self._burst_s = burst_s
        self._most = most
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str, now: float) -> float:
        """Take a token of a name and return 0, or return in how many seconds there will be one."""
        if self._rate_per_s == 0:
            return 0.0
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = TokenBucket(self._rate_per_s, self._burst_s, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        return bucket.take(now)
