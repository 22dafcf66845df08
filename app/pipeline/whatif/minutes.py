"""The minutes of buckets under two limits: summed up, or each of them.

Spark looks up the buckets of all minutes, and divides them by bucket. A task of Arrow has all the
minutes of some buckets, whatever the period: what waits is carried from each minute to the next.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.usage.measures import Numbers, begins_of, times_true
from app.pipeline.whatif.model import MICRO, Minutes, Replayed, replay

MINUTES_OF_TASK: Final = 1_000_000
"""About so many minutes of series a task has in memory."""

_MINUTE_MICROS: Final = 60 * MICRO
_END: Final = 2.0**63

_BUCKETS: Final = """bucket_id bigint, broker_id int, minutes int, minutes_throttled_now int,
    minutes_throttled int, censored_minutes int, highest double, refused double,
    throttled_s_now double, throttled_s_new_low double, throttled_s_new double,
    throttled_s_new_high double"""
_MINUTES: Final = """bucket_id bigint, broker_id int, ts timestamp, rate_avg double,
    rate_max double, limit_now double, limit_new double, waiting double, waiting_max double,
    throttled_s_now double, throttled_s_new_low double, throttled_s_new double,
    throttled_s_new_high double, censored boolean"""


def throttled_buckets(rates: DataFrame, members: DataFrame, *, shares: int) -> DataFrame:
    """Sum up how long each bucket is throttled on each broker, under two limits.

    Args:
        rates: ``series_id, broker_id, ts, rate_avg, rate_max, throttle_ms_avg, throttle_ms_max``,
            a minute of a series on a broker once.
        members: ``series_id, bucket_id, in_now, in_new`` (boolean: under which of the limits the
            series spends from the bucket), ``limit_now``, ``limit_new`` (double, above 0; null
            for none; of a bucket they are those of its members that spend from it) and
            ``has_tokens`` (boolean: ``controller_mutation_rate``). They are sent to every worker.
        shares: Into how many tasks the buckets are divided.

    Returns:
        A row for each bucket and broker: ``bucket_id, broker_id``; ``minutes`` that were measured;
        ``minutes_throttled_now`` and ``minutes_throttled`` (under the new limit, middle figure);
        ``censored_minutes``, in which the broker throttled or the rate was at ``limit_now``;
        ``highest``, the most that waited under the new limit, in units of the key; ``refused``
        mutations; ``throttled_s_now`` (middle figure), ``throttled_s_new_low``,
        ``throttled_s_new`` (middle) and ``throttled_s_new_high`` in seconds.
    """
    return _divided(rates, members, shares).mapInArrow(_sum_up, _BUCKETS)


def throttled_minutes(rates: DataFrame, members: DataFrame, *, shares: int) -> DataFrame:
    """Return each minute of buckets on brokers, under two limits.

    Args:
        rates: As of ``throttled_buckets``.
        members: The same.
        shares: The same.

    Returns:
        The columns of ``WHATIF_TIMELINE`` but the run's and ``key``.
    """
    return _divided(rates, members, shares).mapInArrow(_list_minutes, _MINUTES)


def _divided(rates: DataFrame, members: DataFrame, shares: int) -> DataFrame:
    joined = rates.join(sf.broadcast(members), "series_id").select(
        "bucket_id",
        "broker_id",
        sf.expr("unix_seconds(ts) div 60").alias("minute"),
        *("rate_avg", "rate_max"),
        sf.greatest("throttle_ms_avg", "throttle_ms_max").alias("throttle_ms"),
        *("in_now", "in_new", "limit_now", "limit_new", "has_tokens"),
    )
    return joined.repartition(shares, "bucket_id")


@dataclass(frozen=True, slots=True)
class _Side:
    """The buckets' rates under one of the limits, and what becomes of them."""

    limits: Numbers
    average: Numbers
    maximum: Numbers
    replayed: Replayed


@dataclass(frozen=True, slots=True)
class _Share:
    """The minutes of some buckets by bucket, broker and time, under both limits.

    Attributes:
        begins: Where each series begins, a bucket on a broker.
        bucket: Of each minute.
        broker: The same.
        minute: Of the epoch.
        censored: Whether the clients may have wanted more.
    """

    begins: Numbers
    bucket: Numbers
    broker: Numbers
    minute: Numbers
    censored: Numbers
    now: _Side
    new: _Side

    def per_minute(self, of_series: Numbers) -> Numbers:
        """Return a value of each series at each of its minutes."""
        return np.repeat(of_series, np.diff(self.begins, append=len(self.bucket)))


def _share_of(batches: Iterable[pa.RecordBatch]) -> _Share | None:
    """Sum up the members of each bucket in each minute on each broker, and run both limits."""
    listed = list(batches)
    rows = pa.Table.from_batches(listed) if listed else None
    if rows is None or not rows.num_rows:
        return None
    columns: dict[str, Any] = {name: rows[name].to_numpy() for name in rows.column_names}
    order = np.lexsort((columns["minute"], columns["broker_id"], columns["bucket_id"]))
    columns = {name: column[order] for name, column in columns.items()}
    names = (columns["bucket_id"], columns["broker_id"])
    at = begins_of(*names, columns["minute"])
    bucket, broker, minute = (each[at] for each in (*names, columns["minute"]))
    begins = begins_of(bucket, broker)
    series = _Rows(columns, at, at[begins])
    tokens = columns["has_tokens"][at[begins]]
    now, new = (series.side(side, Minutes(begins, minute, at, at), tokens) for side in _SIDES)
    counts = np.diff(begins, append=len(at))
    throttled = np.fmax.reduceat(columns["throttle_ms"], at) > 0
    censored = throttled | (now.maximum >= np.repeat(now.limits, counts))
    return _Share(begins, bucket, broker, minute, censored, now, new)


_SIDES: Final = ("now", "new")


@dataclass(frozen=True, slots=True)
class _Rows:
    """The minutes of members in order.

    Attributes:
        columns: By name.
        at: Where the members of a minute of a bucket begin.
        series: Where those of a bucket on a broker begin.
    """

    columns: Mapping[str, Any]
    at: Numbers
    series: Numbers

    def side(self, side: str, minutes: Minutes, tokens: Numbers) -> _Side:
        """Run one of the limits."""
        is_member = self.columns[f"in_{side}"]
        limits = np.where(is_member, self.columns[f"limit_{side}"], np.nan)
        limits = np.fmax.reduceat(limits, self.series)
        average = self._sum("rate_avg", is_member)
        maximum = self._sum("rate_max", is_member)
        found = Minutes(minutes.begins, minutes.minute, average, maximum)
        return _Side(limits, average, maximum, replay(found, limits, tokens))

    def _sum(self, name: str, is_member: Numbers) -> Numbers:
        """Add up in integers of 10^-6 units, so that no order of the members shows in it."""
        values = np.where(is_member, self.columns[name], 0.0) * MICRO
        if np.add.reduceat(values, self.at).max() >= _END:
            message = "the rates of a bucket add up to more than 64 bits hold"
            raise OverflowError(message)
        sums: Numbers = np.add.reduceat(np.rint(values).astype(np.int64), self.at) / MICRO
        return sums


def _sum_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    share = _share_of(batches)
    if share is None:
        return
    begins, new = share.begins, share.new.replayed

    def total(values: Numbers) -> Numbers:
        return np.add.reduceat(values, begins) / MICRO

    def minutes_of(replayed: Replayed) -> Numbers:
        idle = -(-replayed.idle // _MINUTE_MICROS)
        return np.add.reduceat((replayed.throttled[1] > 0) + idle, begins).astype(np.int32)

    low, mid, high = (total(seconds + new.idle) for seconds in new.throttled)
    now = share.now.replayed
    yield pa.RecordBatch.from_pydict(
        {
            "bucket_id": share.bucket[begins],
            "broker_id": share.broker[begins],
            "minutes": np.diff(begins, append=len(share.bucket)).astype(np.int32),
            "minutes_throttled_now": minutes_of(now),
            "minutes_throttled": minutes_of(new),
            "censored_minutes": times_true(share.censored, begins),
            "highest": np.maximum.reduceat(new.highest, begins),
            "refused": total(new.refused),
            "throttled_s_now": total(now.throttled[1] + now.idle),
            "throttled_s_new_low": low,
            "throttled_s_new": mid,
            "throttled_s_new_high": high,
        }
    )


def _list_minutes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    share = _share_of(batches)
    if share is None:
        return
    new = share.new.replayed
    low, mid, high = (seconds / MICRO for seconds in new.throttled)
    limits = (pa.array(share.per_minute(side.limits), from_pandas=True) for side in _sides(share))
    limit_now, limit_new = limits
    # Of a bucket that nobody spends from yet, the rates are those of who would.
    average, maximum = (
        np.maximum(*(cast("Numbers", getattr(side, name)) for side in _sides(share)))
        for name in ("average", "maximum")
    )
    yield pa.RecordBatch.from_pydict(
        {
            "bucket_id": share.bucket,
            "broker_id": share.broker,
            "ts": pa.array(share.minute * _MINUTE_MICROS).cast(pa.timestamp("us", "UTC")),
            "rate_avg": average,
            "rate_max": maximum,
            "limit_now": limit_now,
            "limit_new": limit_new,
            "waiting": new.waiting,
            "waiting_max": new.highest,
            "throttled_s_now": share.now.replayed.throttled[1] / MICRO,
            "throttled_s_new_low": low,
            "throttled_s_new": mid,
            "throttled_s_new_high": high,
            "censored": share.censored,
        }
    )


def _sides(share: _Share) -> tuple[_Side, _Side]:
    return share.now, share.new
