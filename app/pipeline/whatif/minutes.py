"""The minutes of buckets under two limits: summed up, or each of them.

Hours are read one after the other, and what waits in a bucket at the end of each is carried to the
next: so no period is in memory, and an hour stays in the processor's cache.
"""

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.lake import schema_of_columns
from app.pipeline.partitions import Partition
from app.pipeline.tables import RATE_MINUTE
from app.pipeline.usage.measures import Numbers, begins_of, ends_of, times_true
from app.pipeline.whatif.model import MICRO, Minutes, Replayed, replay

RATES: Final = (
    *("series_id", "broker_id", "ts", "rate_avg", "rate_max"),
    *("throttle_ms_avg", "throttle_ms_max"),
)
"""The columns of ``RATE_MINUTE`` that are looked at."""

Read = Callable[[Partition], pa.Table]
"""Returns ``RATES`` of an hour, a minute of a series on a broker once."""

_MINUTE_MICROS: Final = 60 * MICRO
_END: Final = 2.0**63
_SIDES: Final = ("now", "new")
_FIGURES: Final = ("_low", "", "_high")


def throttled_buckets(read: Read, hours: Sequence[Partition], members: pa.Table) -> pa.Table:
    """Sum up how long each bucket is throttled on each broker, under two limits.

    Args:
        read: Reads an hour, several at once.
        hours: In their order.
        members: As of ``buckets.Touched``; the limits of a bucket are those of its members that
            spend from it, and null is no limit, as NaN.

    Returns:
        A row for each bucket and broker: ``bucket_id, broker_id``; ``minutes`` that were measured;
        ``minutes_throttled_now`` and ``minutes_throttled`` (under the new limit, middle figure);
        ``censored_minutes``, in which the broker throttled or the rate was at ``limit_now``;
        ``highest``, the most that waited under the new limit, in units of the key; ``refused``
        mutations; ``throttled_s_now`` (middle figure), ``throttled_s_new_low``,
        ``throttled_s_new`` (middle) and ``throttled_s_new_high`` in seconds.
    """
    look_up = Members(members).minutes_of
    return sum_up(_ahead(lambda hour: look_up(read(hour)), hours))


def throttled_minutes(read: Read, hours: Sequence[Partition], members: pa.Table) -> pa.Table:
    """Return each minute of buckets on brokers, under two limits: all of them are in memory.

    They have the columns of ``WHATIF_TIMELINE`` but the run's and ``key``.
    """
    is_member = pc.field("series_id").isin(members["series_id"].combine_chunks())
    own = _ahead(lambda hour: read(hour).filter(is_member), hours if len(members) else ())
    rates = pa.concat_tables([schema_of_columns(RATE_MINUTE, RATES).empty_table(), *own])
    return _list_minutes(Members(members).minutes_of(rates))


def _ahead(read: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Yield what is read of each item in their order, while others read the next ones."""
    most = os.cpu_count() or 1
    reading: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(most) as threads:
        for item in items:
            reading.append(threads.submit(read, item))
            if len(reading) > most:
                yield reading.popleft().result()
        while reading:
            yield reading.popleft().result()


@dataclass(frozen=True, slots=True)
class BucketMinutes:
    """The minutes of series, each a bucket on a broker, in order of bucket, broker and time.

    Attributes:
        begins: Where each series begins; it has a ``bucket``, ``broker`` and ``has_tokens``.
        limits: Of each series: a row for now, and one for then, as of ``is_spent`` (whether any
            member with minutes spends under it), ``average`` and ``maximum``.
        minute: Of the epoch.
        throttled: Of each minute, whether the broker said that it throttled.
        average: Of each minute, like ``maximum``: of all members that spend under the limit.
    """

    begins: Numbers
    bucket: Numbers
    broker: Numbers
    has_tokens: Numbers
    limits: Numbers
    is_spent: Numbers
    minute: Numbers
    throttled: Numbers
    average: Numbers
    maximum: Numbers

    def per_minute(self, of_series: Numbers) -> Numbers:
        """Return a value of each series at each of its minutes."""
        return np.repeat(of_series, np.diff(self.begins, append=len(self.minute)))

    def censored(self) -> Numbers:
        """Tell of each minute whether the clients may have wanted more."""
        censored: Numbers = self.throttled | (self.maximum[0] >= self.per_minute(self.limits[0]))
        return censored

    def replayed(
        self, side: int, waiting: Numbers | None = None, since: Numbers | None = None
    ) -> Replayed:
        """Run one of the limits, from what waited at the end of a minute."""
        minutes = Minutes(self.begins, self.minute, self.average[side], self.maximum[side])
        return replay(minutes, self.limits[side], self.has_tokens, waiting, since)


class Members:
    """Series in buckets, by series: one may be in two buckets.

    Args:
        members: As of ``throttled_buckets``, all of each bucket.
    """

    def __init__(self, members: pa.Table) -> None:
        ordered = members.sort_by("series_id")
        self._series, self._bucket, self._has_tokens = (
            ordered[name].to_numpy() for name in ("series_id", "bucket_id", "has_tokens")
        )
        self._is_in, limits = (
            np.stack([ordered[f"{name}_{side}"].to_numpy() for side in _SIDES])
            for name in ("in", "limit")
        )
        order = np.argsort(self._bucket, kind="stable")
        begins = begins_of(self._bucket[order])
        bucket = np.empty(len(order), np.int64)
        bucket[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(order)))
        spent = np.where(self._is_in, limits, np.nan)[:, order]
        self._limits = np.fmax.reduceat(spent, begins, axis=1)[:, bucket]

    def minutes_of(self, rates: pa.Table) -> BucketMinutes:
        """Return the minutes of buckets in minutes of series.

        Series are looked up for each run of them: files have the minutes of a series on a broker
        one after the other.
        """
        series, broker = (rates[name].to_numpy() for name in ("series_id", "broker_id"))
        runs = begins_of(series, broker)
        begins = np.searchsorted(self._series, series[runs])
        ends = np.searchsorted(self._series, series[runs], "right")
        run, member = np.repeat(runs, ends - begins), _ranges(begins, ends)
        lengths = np.repeat(np.diff(runs, append=len(series)), ends - begins)
        bucket, broker = self._bucket[member], broker[run]
        order = np.lexsort((broker, bucket))
        bucket, broker, run, member, lengths = (
            each[order] for each in (bucket, broker, run, member, lengths)
        )
        first = begins_of(bucket, broker)
        number = np.repeat(np.arange(len(first)), np.diff(first, append=len(run)))
        row = _ranges(run, run + lengths)
        number, of_row = np.repeat(number, lengths), np.repeat(member, lengths)
        minute = rates["ts"].cast(pa.int64()).to_numpy()[row] // _MINUTE_MICROS
        order = np.argsort(number * (minute.max(initial=0) + 1) + minute, kind="stable")
        number, row, of_row, minute = (each[order] for each in (number, row, of_row, minute))
        at = begins_of(number, minute)
        throttle = [rates[name].to_numpy() > 0 for name in ("throttle_ms_avg", "throttle_ms_max")]
        of_rows = [rates[name].to_numpy()[row] for name in ("rate_avg", "rate_max")]
        is_in = np.take(self._is_in, of_row, axis=1)
        average, maximum = (np.stack([_sum(each, own, at) for own in is_in]) for each in of_rows)
        return BucketMinutes(
            begins=begins_of(number[at]),
            bucket=bucket[first],
            broker=broker[first],
            has_tokens=self._has_tokens[member[first]],
            limits=self._limits[:, member[first]],
            is_spent=np.logical_or.reduceat(self._is_in[:, member], first, axis=1),
            minute=minute[at],
            throttled=np.logical_or.reduceat(np.logical_or(*throttle)[row], at),
            average=average,
            maximum=maximum,
        )


def _ranges(begins: Numbers, ends: Numbers) -> Numbers:
    """Return the numbers of all ranges, one range after the other."""
    lengths = ends - begins
    before = np.cumsum(lengths) - lengths
    numbers: Numbers = np.repeat(begins - before, lengths) + np.arange(lengths.sum())
    return numbers


def _sum(values: Numbers, is_member: Numbers, at: Numbers) -> Numbers:
    """Add up in integers of 10^-6 units, so that no order of the members shows in it."""
    micros = np.where(is_member, values, 0.0) * MICRO
    if np.add.reduceat(micros, at).max(initial=0) >= _END:
        message = "the rates of a bucket add up to more than 64 bits hold"
        raise OverflowError(message)
    sums: Numbers = np.add.reduceat(np.rint(micros).astype(np.int64), at) / MICRO
    return sums


_SERIES: Final = np.dtype(
    [
        *(("bucket_id", "i8"), ("broker_id", "i4"), ("since", "i8")),
        *(("minutes", "i4"), ("censored_minutes", "i4")),
        *((f"{name}{suffix}", "f8") for name in ("waiting", "highest") for suffix in ("_now", "")),
        *((f"minutes_throttled{suffix}", "i4") for suffix in ("_now", "")),
        *((f"refused{suffix}", "i8") for suffix in ("_now", "")),
        *((f"throttled_s_{side}{figure}", "i8") for side in _SIDES for figure in _FIGURES),
    ]
)
"""What a series has so far: times and refused mutations in 10^-6, so that sums have no order."""


def sum_up(hours: Iterable[BucketMinutes]) -> pa.Table:
    """Sum up the minutes of each series; what waits is carried from each hour to the next."""
    numbers: defaultdict[tuple[int, int], int] = defaultdict()
    numbers.default_factory = numbers.__len__
    series = np.zeros(0, _SERIES)
    for minutes in hours:
        names = zip(minutes.bucket.tolist(), minutes.broker.tolist(), strict=True)
        at = np.fromiter(map(numbers.__getitem__, names), np.int64)
        if len(numbers) > len(series):
            series.resize(2 * len(numbers), refcheck=False)
        series[at] = _added(series[at], minutes)
    found = {name: series[name][: len(numbers)] for name in _SERIES.names or ()}
    in_micros = {name: found[name] / MICRO for name in found if name.startswith(_IN_MICROS)}
    return pa.table(
        {name: np.ascontiguousarray(each) for name, each in (found | in_micros).items()}
    )


_IN_MICROS: Final = ("throttled_s", "refused")


def _added(series: Any, minutes: BucketMinutes) -> Any:
    """Return what some series have so far, with more minutes of them."""
    begins, last = minutes.begins, ends_of(minutes.begins, len(minutes.minute))
    since = np.where(series["minutes"] > 0, series["since"], minutes.minute[begins] - 1)
    series["bucket_id"], series["broker_id"] = minutes.bucket, minutes.broker
    series["since"] = minutes.minute[last]
    series["minutes"] += (last + 1 - begins).astype(np.int32)
    series["censored_minutes"] += times_true(minutes.censored(), begins)
    for side, (name, suffix) in enumerate((("now", "_now"), ("new", ""))):
        if np.isnan(minutes.limits[side]).all():
            continue
        found = minutes.replayed(side, series[f"waiting{suffix}"], since)
        series[f"waiting{suffix}"] = found.waiting[last]
        micros = np.add.reduceat(found.throttled + found.idle, begins, axis=1)
        for figure, of_figure in zip(_FIGURES, micros, strict=True):
            series[f"throttled_s_{name}{figure}"] += of_figure
        throttled = (found.throttled[1] > 0) - (-found.idle // _MINUTE_MICROS)
        series[f"minutes_throttled{suffix}"] += np.add.reduceat(throttled, begins).astype(np.int32)
        highest = np.maximum.reduceat(found.highest, begins)
        series[f"highest{suffix}"] = np.maximum(series[f"highest{suffix}"], highest)
        series[f"refused{suffix}"] += np.add.reduceat(found.refused, begins)
    return series


def _list_minutes(minutes: BucketMinutes) -> pa.Table:
    now, new = minutes.replayed(0), minutes.replayed(1)
    columns = {
        "bucket_id": minutes.per_minute(minutes.bucket),
        "broker_id": minutes.per_minute(minutes.broker),
        "ts": pa.array(minutes.minute * _MINUTE_MICROS).cast(pa.timestamp("us", "UTC")),
        # Of a bucket that nobody spends from yet, the rates are those of who would.
        "rate_avg": minutes.average.max(axis=0),
        "rate_max": minutes.maximum.max(axis=0),
        "waiting": new.waiting,
        "waiting_max": new.highest,
        "throttled_s_now": now.throttled[1] / MICRO,
        "censored": minutes.censored(),
    }
    limits = np.where(minutes.is_spent, minutes.limits, np.nan)
    for side, limit in zip(_SIDES, limits, strict=True):
        columns[f"limit_{side}"] = pa.array(minutes.per_minute(limit), from_pandas=True)
    for figure, micros in zip(_FIGURES, new.throttled, strict=True):
        columns[f"throttled_s_new{figure}"] = micros / MICRO
    return pa.table(columns)
