"""The model of throttling, one minute of one bucket after the other, which the columns are held to.

Naive on purpose: plain Python. ``app.domain.throttling`` says what it assumes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from app.domain.throttling import CREDITS_S, LATEST_S, MINUTE_S, TOKENS_S


class Seconds(NamedTuple):
    """Throttled seconds, by how much credit a burst had."""

    low: float = 0.0
    mid: float = 0.0
    high: float = 0.0


NO_SECONDS: Final = Seconds()


class Stretch(NamedTuple):
    """What becomes of a bucket in a minute, or in minutes without traffic.

    Attributes:
        waiting: What waits at its end: bytes, percent x seconds, or spent tokens.
        highest: The most that waited in it.
        throttled: For how long.
        refused: Mutations that were refused.
    """

    waiting: float
    highest: float
    throttled: Seconds
    refused: float = 0.0


@dataclass(frozen=True, slots=True)
class Throttle:
    """A limit, and how it is enforced.

    Attributes:
        limit: Units per second, above 0; null is unlimited.
        has_tokens: Whether requests are refused, as those of ``TOKEN_KEY``.
    """

    limit: float | None
    has_tokens: bool = False

    def minute(self, waiting: float, average: float, maximum: float) -> Stretch:
        """Return what becomes of a minute with this average and maximum rate.

        Args:
            waiting: At its start.
            average: At least 0, units per second.
            maximum: The same; one below the average counts as the average.
        """
        if self.limit is None:
            return Stretch(0.0, 0.0, NO_SECONDS)
        rate = max(average, maximum)
        busy = min(MINUTE_S, MINUTE_S * average / rate) if rate > 0 else 0.0
        gained = waiting + (rate - self.limit) * busy
        highest = min(max(gained, 0.0), self._most())
        in_burst = self._throttled(waiting, rate, busy)
        rest = self.idle(highest, MINUTE_S - busy)
        drained = rest.throttled
        seconds = (burst + drain for burst, drain in zip(in_burst, drained, strict=True))
        return Stretch(
            waiting=rest.waiting,
            highest=max(waiting, highest),
            throttled=Seconds(*seconds),
            refused=max(gained - highest, 0.0),
        )

    def idle(self, waiting: float, seconds: float) -> Stretch:
        """Return what becomes of a time without traffic."""
        if self.limit is None:
            return Stretch(0.0, 0.0, NO_SECONDS)
        drained = 0.0 if self.has_tokens else min(seconds, waiting / self.limit)
        left = max(waiting - self.limit * seconds, 0.0)
        return Stretch(left, waiting, Seconds(drained, drained, drained))

    def _most(self) -> float:
        """Return the most that may wait: of tokens, all of them."""
        return TOKENS_S * self.limit if self.has_tokens and self.limit else inf

    def _throttled(self, waiting: float, rate: float, busy: float) -> Seconds:
        """Return for how long a burst is throttled."""
        limit = self.limit or 0.0
        over = rate - limit
        if self.has_tokens:
            refused = max(busy - (self._most() - waiting) / over, 0.0) if over > 0 else 0.0
            return Seconds(refused, refused, refused)
        if waiting > 0:
            drained = busy if over >= 0 else min(busy, waiting / -over)
            return Seconds(drained, drained, drained)
        if over <= 0:
            return NO_SECONDS
        begins = (min(credit_s * limit / over, LATEST_S) for credit_s in CREDITS_S)
        return Seconds(*(max(busy - begin, 0.0) for begin in begins))


class Rates(NamedTuple):
    """A minute of a bucket on a broker.

    Attributes:
        minute: Of the epoch.
        average: Units per second.
        maximum: The same.
    """

    minute: int
    average: float
    maximum: float


class Carried(NamedTuple):
    """What a period leaves to the next one.

    Attributes:
        waiting: At the end of ``minute``.
        minute: The last one with traffic or a report; null before the first.
    """

    waiting: float = 0.0
    minute: int | None = None


AT_FIRST: Final = Carried()
"""What is carried into the first period."""


def replay(
    minutes: Iterable[Rates], throttle: Throttle, carried: Carried = AT_FIRST
) -> tuple[list[tuple[Stretch, Stretch]], Carried]:
    """Run minutes in their order under a limit.

    Between two minutes there was no traffic: a name that was idle for an hour has no minutes.

    Args:
        minutes: In rising order.
        throttle: The limit.
        carried: Of the period before.

    Returns:
        For each minute the time without traffic before it and the minute itself, and what is
        carried on: a period in two is the same as in one.
    """
    stretches = []
    waiting, last = carried
    for minute, average, maximum in minutes:
        gap = 0 if last is None else minute - last - 1
        idle = throttle.idle(waiting, MINUTE_S * gap)
        stretch = throttle.minute(idle.waiting, average, maximum)
        stretches.append((idle, stretch))
        waiting, last = stretch.waiting, minute
    return stretches, Carried(waiting, last)
