"""The minutes of buckets under two limits: summed up, or each of them.

All minutes of a bucket are summed up at once, whatever the period: what waits is carried from each
minute to the next. Spark looks up the buckets of all minutes and divides them by bucket; where the
minutes are at hand as columns, numpy does it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.usage.measures import Numbers, begins_of, times_true
from app.pipeline.whatif.model import MICRO, Minutes, Replayed, replay

MINUTES_OF_TASK: Final = 1_000_000
"""About so many minutes of series a task has in memory."""

RATES: Final = (
    *("series_id", "broker_id", "ts", "rate_avg", "rate_max"),
    *("throttle_ms_avg", "throttle_ms_max"),
)
"""The columns of ``RATE_MINUTE`` that are looked at."""

Rates: TypeAlias = DataFrame | pa.Table
"""Minutes with the columns of ``RATES``: Spark's, or at hand."""

_MINUTES_HERE: Final = 2_000_000
"""The same of what is summed up without Spark: the longest series of each share takes its time."""

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


def throttled_buckets(rates: Rates, members: DataFrame, *, shares: int) -> DataFrame:
    """Sum up how long each bucket is throttled on each broker, under two limits.

    Args:
        rates: ``RATES``, a minute of a series on a broker once.
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
    return _mapped(_Asked(rates, members, shares), _sum_up, _BUCKETS)


def throttled_minutes(rates: Rates, members: DataFrame, *, shares: int) -> DataFrame:
    """Return each minute of buckets on brokers, under two limits.

    Args:
        rates: As of ``throttled_buckets``.
        members: The same.
        shares: The same.

    Returns:
        The columns of ``WHATIF_TIMELINE`` but the run's and ``key``.
    """
    return _mapped(_Asked(rates, members, shares), _list_minutes, _MINUTES)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of ``throttled_buckets``."""

    rates: Rates
    members: DataFrame
    shares: int


def _mapped(asked: _Asked, summed: Callable[["_Share"], pa.RecordBatch], ddl: str) -> DataFrame:
    """Return a row of Arrow's for each share of the buckets."""
    if isinstance(asked.rates, pa.Table):
        found = _summed_here(asked.rates, asked.members.toArrow(), summed)
        return asked.members.sparkSession.createDataFrame(found or [], ddl)

    def sum_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        listed = [batch for batch in batches if batch.num_rows]
        if listed:
            rows = pa.Table.from_batches(listed)
            yield summed(_share_of({name: rows[name].to_numpy() for name in rows.column_names}))

    return _divided(asked.rates, asked.members, asked.shares).mapInArrow(sum_up, ddl)


def _summed_here(
    rates: pa.Table, members: pa.Table, summed: Callable[["_Share"], pa.RecordBatch]
) -> pa.Table | None:
    """Return the rows of all shares; null without a minute of a member."""
    joined = _Joined.of(rates, members)
    number = len(joined.row) // _MINUTES_HERE + 1
    share = (joined.columns["bucket_id"] % number)[joined.member]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        listed = [np.flatnonzero(share == each) for each in range(number)]
        chosen = [rows for rows in listed if len(rows)]
        work = threads.map(lambda rows: summed(_share_of(joined.columns_of(rows))), chosen)
        batches = list(work)
    return pa.Table.from_batches(batches) if batches else None


@dataclass(frozen=True, slots=True)
class _Joined:
    """Minutes of members, each of which is a series in a bucket.

    Attributes:
        rates: By minute.
        columns: By member.
        row: The minute of each.
        member: The member of each.
    """

    rates: pa.Table
    columns: Mapping[str, Numbers]
    row: Numbers
    member: Numbers

    @classmethod
    def of(cls, rates: pa.Table, members: pa.Table) -> "_Joined":
        """Look the members of all minutes up: a series may be in two buckets, or in none."""
        order = np.argsort(members["series_id"].to_numpy(), kind="stable")
        ordered = members.take(pa.array(order))
        columns = {name: ordered[name].to_numpy() for name in (*_OF_MEMBER, "series_id")}
        series = rates["series_id"].to_numpy()
        begins = np.searchsorted(columns["series_id"], series)
        counts = np.searchsorted(columns["series_id"], series, "right") - begins
        row = np.repeat(np.arange(len(series)), counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(rates, columns, row, begins[row] + within)

    def columns_of(self, rows: Numbers) -> Mapping[str, Numbers]:
        """Return the columns of some minutes of members, as ``_divided`` does."""
        rates = self.rates.take(pa.array(self.row[rows]))
        throttle = [rates[name].to_numpy() for name in ("throttle_ms_avg", "throttle_ms_max")]
        return {
            "broker_id": rates["broker_id"].to_numpy(),
            "minute": rates["ts"].cast(pa.int64()).to_numpy() // _MINUTE_MICROS,
            "rate_avg": rates["rate_avg"].to_numpy(),
            "rate_max": rates["rate_max"].to_numpy(),
            "throttle_ms": np.fmax(*throttle),
            **{name: self.columns[name][self.member[rows]] for name in _OF_MEMBER},
        }


_OF_MEMBER: Final = ("bucket_id", "in_now", "in_new", "limit_now", "limit_new", "has_tokens")


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


def _share_of(rows: Mapping[str, Numbers]) -> _Share:
    """Sum up the members of each bucket in each minute on each broker, and run both limits."""
    order = _order(rows["bucket_id"], rows["broker_id"], rows["minute"])
    columns = {name: column[order] for name, column in rows.items()}
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


def _order(bucket: Numbers, broker: Numbers, minute: Numbers) -> Numbers:
    """Return the order by bucket, broker and minute.

    One number is sorted several times faster than three, where 63 bits hold them.
    """
    buckets, brokers = np.unique(bucket), np.unique(broker)
    first = int(minute.min())
    span = int(minute.max()) - first + 1
    if len(buckets) * len(brokers) * span >= _END:
        return np.lexsort((minute, broker, bucket))
    series = np.searchsorted(buckets, bucket) * len(brokers) + np.searchsorted(brokers, broker)
    return np.argsort(series * span + (minute - first))


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


def _sum_up(share: _Share) -> pa.RecordBatch:
    begins, new = share.begins, share.new.replayed

    def total(values: Numbers) -> Numbers:
        return np.add.reduceat(values, begins) / MICRO

    def minutes_of(replayed: Replayed) -> Numbers:
        idle = -(-replayed.idle // _MINUTE_MICROS)
        return np.add.reduceat((replayed.throttled[1] > 0) + idle, begins).astype(np.int32)

    low, mid, high = (total(seconds + new.idle) for seconds in new.throttled)
    now = share.now.replayed
    return pa.RecordBatch.from_pydict(
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


def _list_minutes(share: _Share) -> pa.RecordBatch:
    new = share.new.replayed
    low, mid, high = (seconds / MICRO for seconds in new.throttled)
    limits = (pa.array(share.per_minute(side.limits), from_pandas=True) for side in _sides(share))
    limit_now, limit_new = limits
    # Of a bucket that nobody spends from yet, the rates are those of who would.
    average, maximum = (
        np.maximum(*(cast("Numbers", getattr(side, name)) for side in _sides(share)))
        for name in ("average", "maximum")
    )
    return pa.RecordBatch.from_pydict(
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
