"""The model of ``app.domain.throttling`` for millions of minutes.

What waits follows from the minute before, so that minutes are taken in turn: the first of all
series, then the second, and so on. All else is one operation for a column.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from app.domain.throttling import CREDITS_S, LATEST_S, MINUTE_S, TOKENS_S
from app.pipeline.usage.measures import Numbers

MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Minutes:
    """The minutes of series, one after the other in the order of time: each a bucket on a broker.

    Attributes:
        begins: Where each series begins.
        minute: Of the epoch; without a row there was no traffic.
        average: Units per second, at least 0, as of the maximum.
    """

    begins: Numbers
    minute: Numbers
    average: Numbers
    maximum: Numbers


class Replayed(NamedTuple):
    """What becomes of each minute under a limit; times are integers of 10^-6 s.

    Sums of them are the same in any order.

    Attributes:
        waiting: At its end: bytes, percent x seconds, or spent tokens.
        highest: The most that waited in it.
        throttled: A row for the low, the middle and the high figure: how long.
        idle: For how long the time without traffic before it was throttled.
        refused: Mutations, in 10^-6.
    """

    waiting: Numbers
    highest: Numbers
    throttled: Numbers
    idle: Numbers
    refused: Numbers


def replay(
    minutes: Minutes,
    limits: Numbers,
    has_tokens: Numbers,
    waiting: Numbers | None = None,
    since: Numbers | None = None,
) -> Replayed:
    """Run the minutes of each series under its limit.

    Where nothing waits at first and no rate exceeds the limit, all is 0: only the others are run.

    Args:
        limits: Of each series, above 0; NaN for none.
        has_tokens: Of each series, whether its requests are refused rather than delayed.
        waiting: Of each series, what waited at the end of ``since``; without it nothing.
        since: Of each series, the last minute of the period before.
    """
    begins, (minute, *rates) = minutes.begins, (minutes.minute, minutes.average, minutes.maximum)
    waiting = np.zeros(len(begins)) if waiting is None else waiting
    since = minute[begins] - 1 if since is None else since
    highest = np.maximum.reduceat(np.maximum(*rates), begins)
    # No limit is NaN, which nothing exceeds.
    may_wait = (highest > limits) | ((waiting > 0) & (limits > 0))
    counts = np.diff(begins, append=len(minute))
    at = np.flatnonzero(np.repeat(may_wait, counts))
    own = np.cumsum(counts[may_wait]) - counts[may_wait]
    of_series = (each[may_wait] for each in (limits, has_tokens, waiting, since))
    found = _replay(Minutes(own, minute[at], *(rate[at] for rate in rates)), *of_series)
    everywhere = Replayed(
        *(np.zeros((*each.shape[:-1], len(minute)), each.dtype) for each in found)
    )
    for column, values in zip(everywhere, found, strict=True):
        column[..., at] = values
    return everywhere


def _replay(
    minutes: Minutes, limits: Numbers, has_tokens: Numbers, waiting: Numbers, since: Numbers
) -> Replayed:
    """Run series all of which have a limit."""
    rows = len(minutes.minute)
    rate = np.maximum(minutes.average, minutes.maximum)
    series = np.zeros(rows, np.int64)
    series[minutes.begins[1:]] = 1
    series = np.cumsum(series)
    limit, tokens = limits[series], has_tokens[series]
    busy = np.divide(MINUTE_S * minutes.average, rate, out=np.zeros(rows), where=rate > 0)
    busy = np.minimum(MINUTE_S, busy)
    rest = MINUTE_S - busy
    over = rate - limit
    most = np.where(tokens, TOKENS_S * limit, np.inf)
    # How many seconds without traffic there were before each minute.
    gap = np.diff(minutes.minute, prepend=minutes.minute[:1])
    gap[minutes.begins] = minutes.minute[minutes.begins] - since
    gap = MINUTE_S * (gap - 1)
    columns = (limit * gap, over * busy, most, limit * rest)
    start, before = _waiting(minutes.begins, columns, waiting)
    gained = before + over * busy
    peak = np.minimum(np.maximum(gained, 0.0), most)
    burst = _delayed_in_burst(before, over, busy, limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        refusing = np.where(over > 0, np.maximum(busy - (most - before) / over, 0.0), 0.0)
    drain = np.where(tokens, 0.0, np.minimum(rest, peak / limit))
    idle = np.where(tokens, 0.0, np.minimum(gap, start / limit))
    refused = np.maximum(gained - peak, 0.0)
    return Replayed(
        waiting=np.maximum(peak - limit * rest, 0.0),
        highest=np.maximum(before, peak),
        throttled=_micros(np.where(tokens, refusing, burst + drain)),
        idle=_micros(idle),
        refused=_micros(refused),
    )


def _micros(values: Numbers) -> Numbers:
    micros: Numbers = np.rint(values * MICRO).astype(np.int64)
    return micros


def _delayed_in_burst(before: Numbers, over: Numbers, busy: Numbers, limit: Numbers) -> Numbers:
    """Return for how long each burst is delayed: a row for each credit.

    ``before`` waits when it begins, its rate is so much ``over`` the limit, for ``busy`` seconds.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        drained = np.where(over >= 0, busy, np.minimum(busy, before / -over))
        begins = [np.minimum(credit_s * limit / over, LATEST_S) for credit_s in CREDITS_S]
        rested = [np.where(over > 0, np.maximum(busy - begin, 0.0), 0.0) for begin in begins]
    return np.where(before > 0, drained, rested)


def _waiting(begins: Numbers, columns: Sequence[Numbers], carried: Numbers) -> Numbers:
    """Return what waits at the end of the minute before each, and when it begins.

    Rows go by turn: the first minute of each series, the longest series first, and so on.

    Args:
        columns: What drains before a minute, what its burst adds, the most that may wait, and what
            drains after the burst.
        carried: Of each series, what waits at first.
    """
    rows, series = len(columns[0]), len(begins)
    lengths = np.diff(begins, append=rows)
    longest = np.argsort(-lengths, kind="stable")
    rank = np.empty(series, np.int64)
    rank[longest] = np.arange(series)
    turn = np.arange(rows) - np.repeat(begins, lengths)
    # One number is sorted several times faster than two.
    order = np.argsort(turn * series + np.repeat(rank, lengths))
    idle, gained, most, drained = (column[order] for column in columns)
    start, before = np.zeros(rows), np.zeros(rows)
    state, begin = carried[longest], 0
    for end in np.cumsum(np.bincount(turn)).tolist():
        at: Any = slice(begin, end)
        start[at] = state[: end - begin]
        now = np.maximum(start[at] - idle[at], 0.0, out=before[at])
        peak = np.minimum(np.maximum(now + gained[at], 0.0), most[at])
        state = np.maximum(peak - drained[at], 0.0)
        begin = end
    found = np.empty((2, rows))
    found[:, order] = start, before
    return found
