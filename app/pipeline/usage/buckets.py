"""What each bucket did in each minute and hour on each broker, beside its limit.

A task has the minutes of a whole hour and what was decided for their series, as columns: it reads
them itself where they are on this machine, else Spark divides them by hour. It looks up the
buckets, and sums them up: Spark's own functions of arrays are interpreted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.by_partition import Columns, Reading, Share, by_partition
from app.pipeline.errors import UsageError
from app.pipeline.folder_writer import ByTasks
from app.pipeline.lake import Lake, arrow_schema
from app.pipeline.partitions import Partition
from app.pipeline.results import Scope
from app.pipeline.tables import BUCKET_HOUR, BUCKET_MINUTE, RATE_MINUTE, SERIES, SERIES_LIMIT, Table
from app.pipeline.usage.measures import (
    BYTE_KEYS,
    Numbers,
    begins_of,
    hours_of_epoch,
    ranks_of,
    rate_bins,
    times_true,
    usable,
    with_columns,
)

_MICRO: Final = 1_000_000
_TIME_BITS: Final = 32
_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 3_600_000_000
_MOST_BYTES: Final = 10**13
"""No broker moves more in a minute; it keeps the sums of absurd rates within 64 bits."""

_FACTS: Final = (
    Columns(
        RATE_MINUTE,
        (
            *("series_id", "broker_id", "ts", "rate_avg", "rate_max"),
            *("throttle_ms_avg", "throttle_ms_max", "samples"),
        ),
        divided_by="broker_id",
    ),
    Columns(SERIES, ("series_id", "key")),
    Columns(
        SERIES_LIMIT,
        (
            *("cluster_id", "dt", "hour", "series_id", "valid_from", "valid_to"),
            *("bucket_id", "level", "limit"),
        ),
        keys=SERIES.order,
    ),
)
_OF_VIOLATION: Final = ("minute", "level", "ratio", "throttle_ms", "deferred")
_BYTES_OF_SHARE: Final = 6_000_000
"""Files with so many bytes have about 500,000 minutes."""


def facts_of(lakes: Sequence[Lake], scope: Scope) -> list[Partition]:
    """Return the hours of a cluster and period that have minutes of series.

    Raises:
        UsageError: No input has one of the tables that buckets follow from.
    """
    for table in (RATE_MINUTE, SERIES, SERIES_LIMIT):
        if not any(lake.has(table) for lake in lakes):
            message = (
                f"There is no table {table.name} in {', '.join(lake.name for lake in lakes)}: name "
                "the folder that `ingest` and `resolve` wrote with --out."
            )
            raise UsageError(message)
    return scope.hours([lake for lake in lakes if lake.has(RATE_MINUTE)], RATE_MINUTE)


def minutes_of_buckets(
    lakes: Sequence[Lake], hours: Sequence[Partition], bucket_ids: Sequence[int] | None = None
) -> ByTasks:
    """Return ``BUCKET_MINUTE`` of hours of lakes: the sums of the members of each bucket.

    Of lakes that overlap the first counts. ``bucket_ids`` are null for all buckets.
    """
    return _summed(lakes, hours, minutes_of, BUCKET_MINUTE, bucket_ids)


def hours_of_buckets(lakes: Sequence[Lake], hours: Sequence[Partition]) -> ByTasks:
    """Return ``BUCKET_HOUR`` of hours of lakes."""
    return _summed(lakes, hours, hours_of, BUCKET_HOUR)


def _summed(
    lakes: Sequence[Lake],
    hours: Sequence[Partition],
    sum_up: Callable[["Minutes"], pa.Table],
    table: Table,
    bucket_ids: Sequence[int] | None = None,
) -> ByTasks:
    schema = arrow_schema(table.ddl)

    def make(_: Share, rates: pa.Table, names: pa.Table, limits: pa.Table) -> pa.Table:
        if bucket_ids is not None:
            limits = limits.filter(pc.field("bucket_id").isin(bucket_ids))
        return sum_up(sum_members(rates, names, limits)).select(schema.names).cast(schema)

    return by_partition(lakes, Reading(_FACTS, _BYTES_OF_SHARE), hours, make)


@dataclass(frozen=True, slots=True)
class Minutes:
    """The minutes of an hour's buckets, by bucket, broker and minute.

    Attributes:
        limits: What was decided for the members, with the key.
        rows: The row of ``limits`` of each minute: all of a bucket have the same at a time.
        bucket: The rank of its id.
        minute: Of the hour.
        micros: The sum of the rates in 10^-6 units, so that no order of the members shows in it.
        rate_max: The sum of the maxima.
        throttle_avg: The mean of the members' throttle times, ms; NaN without any.
        throttle_max: The longest of them; NaN without any.
        bytes_est: 60 seconds of the average rate, of each member rounded to bytes.
        contributors: Members with a sample.
    """

    limits: pa.Table
    rows: Numbers
    bucket: Numbers
    broker: Numbers
    minute: Numbers
    micros: Numbers
    rate_max: Numbers
    throttle_avg: Numbers
    throttle_max: Numbers
    bytes_est: Numbers
    contributors: Numbers

    @property
    def limit(self) -> Numbers:
        """NaN for none."""
        return _numbers(self.limits, "limit")[self.rows]

    def limits_at(self, at: Numbers) -> pa.Table:
        """Return what was decided at some of the minutes, and the broker."""
        return with_columns(self.limits.take(self.rows[at]), {"broker_id": self.broker[at]})


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column; null is NaN."""
    return cast("Numbers", table[name].to_numpy())


def _micros(table: pa.Table, name: str) -> Numbers:
    """Return a column in 10^-6 units; null is 0."""
    micros: Numbers = np.rint(np.nan_to_num(_numbers(table, name)) * _MICRO).astype(np.int64)
    return micros


def _times(table: pa.Table, name: str) -> Numbers:
    """Return times in microseconds of the epoch."""
    return cast("Numbers", table[name].cast(pa.int64()).to_numpy())


def _of_bytes(values: Numbers, key: pa.Array) -> pa.Array:
    """Return bytes, null for keys that count none."""
    return pc.if_else(pc.is_in(key, value_set=pa.array(BYTE_KEYS)), values, None)


def _look_up(rates: pa.Table, times: Numbers, limits: pa.Table) -> tuple[Numbers, Numbers]:
    """Return which minutes have a limit of their series and time, and the row that has it.

    Times are microseconds since the start of the hour.
    """
    if not len(limits):
        return np.empty(0, int), np.empty(0, int)
    wanted, own = (_numbers(table, "series_id") for table in (rates, limits))
    series, rank = np.unique(own, return_inverse=True)
    start = hours_of_epoch(limits) * _HOUR_US
    since, until = (
        np.clip(_times(limits, name) - start, 0, _HOUR_US) for name in ("valid_from", "valid_to")
    )
    begins = (rank << _TIME_BITS) + since
    order = np.argsort(begins)
    points = (np.searchsorted(series, wanted) << _TIME_BITS) + times
    rows = order[np.searchsorted(begins[order], points, "right") - 1]
    is_held = (own[rows] == wanted) & (since[rows] <= times) & (times < until[rows])
    at = np.flatnonzero(is_held)
    return at, rows[at]


def sum_members(rates: pa.Table, names: pa.Table, limits: pa.Table) -> Minutes:
    """Sum up the members of each bucket in each minute on each broker.

    The columns are those of ``RATE_MINUTE``, ``SERIES`` and ``SERIES_LIMIT`` of an hour.
    """
    number = pc.index_in(limits["series_id"], names["series_id"].combine_chunks())
    # Series without a name have no key, and their limits no use.
    limits = limits.append_column("key", names["key"].take(number)).filter(number.is_valid())
    minute = _times(rates, "ts") % _HOUR_US // _MINUTE_US
    at, rows = _look_up(rates, minute * _MINUTE_US, limits)
    members, minute = rates.take(at), minute[at]
    broker = _numbers(members, "broker_id").astype(np.int64)
    bucket = ranks_of(limits["bucket_id"])[rows]
    spots = np.unique(broker * 60 + minute, return_inverse=True)[1]
    point = bucket * len(members) + spots
    order = np.argsort(point)
    begins = begins_of(point[order])
    micros = _micros(members, "rate_avg")
    has_throttle = ~np.isnan(_numbers(members, "throttle_ms_avg"))
    whole, rest = np.divmod(micros, _MICRO)

    def total(values: Numbers) -> Numbers:
        if np.add.reduceat(values[order].astype(float), begins).max(initial=0) >= 2.0**63:
            message = "the rates of a bucket add up to more than 64 bits hold"
            raise OverflowError(message)
        sums: Numbers = np.add.reduceat(values[order], begins)
        return sums

    throttle = total(_micros(members, "throttle_ms_avg"))
    times = times_true(has_throttle[order], begins)
    first = order[begins]
    return Minutes(
        limits=limits.drop_columns(["series_id", "valid_from", "valid_to"]),
        rows=rows[first],
        bucket=bucket[first],
        broker=broker[first],
        minute=minute[first],
        micros=total(micros),
        rate_max=total(_micros(members, "rate_max")) / _MICRO,
        throttle_avg=np.where(times > 0, throttle / np.maximum(times, 1) / _MICRO, np.nan),
        throttle_max=np.fmax.reduceat(_numbers(members, "throttle_ms_max")[order], begins),
        bytes_est=total(whole * 60 + (rest * 60 + _MICRO // 2) // _MICRO),
        contributors=times_true((_numbers(members, "samples") > 0)[order], begins),
    )


def minutes_of(minutes: Minutes) -> pa.Table:
    """Return the columns of ``BUCKET_MINUTE``."""
    decided = minutes.limits_at(np.arange(len(minutes.rows)))
    start = hours_of_epoch(minutes.limits)[minutes.rows] * _HOUR_US
    return with_columns(
        decided,
        {
            "ts": start + minutes.minute * _MINUTE_US,
            "rate_avg": minutes.micros / _MICRO,
            "rate_max": minutes.rate_max,
            "throttle_ms_avg": minutes.throttle_avg,
            "throttle_ms_max": minutes.throttle_max,
            "bytes_est": _of_bytes(minutes.bytes_est, decided["key"]),
            "contributors": minutes.contributors,
        },
    )


def hours_of(minutes: Minutes) -> pa.Table:
    """Return the columns of ``BUCKET_HOUR``."""
    begins = begins_of(minutes.bucket, minutes.broker)
    bounds = np.append(begins, len(minutes.rows))
    counts = np.diff(bounds)
    # Limit and level of the last minute, as all that follow it have them.
    decided = minutes.limits_at(bounds[1:] - 1)
    limit, rate_max = minutes.limit, minutes.rate_max
    throttle = np.fmax(minutes.throttle_avg, minutes.throttle_max)
    longest = np.where(np.isnan(minutes.throttle_max), minutes.throttle_avg, minutes.throttle_max)
    is_throttled, is_over = throttle > 0, rate_max > limit
    violating = np.flatnonzero(is_throttled | is_over)
    violations = pa.array(np.searchsorted(violating, bounds), pa.int32())
    bytes_est = np.add.reduceat(minutes.bytes_est, begins)
    return with_columns(
        decided,
        {
            "minutes": counts,
            "rate_avg": _means(minutes.micros, begins, counts),
            "rate_max": np.maximum.reduceat(rate_max, begins),
            "throttle_ms_max": np.fmax.reduceat(longest, begins),
            "bytes": _of_bytes(bytes_est, decided["key"]),
            "minutes_over_80": times_true(rate_max > 0.8 * limit, begins),
            "minutes_over_100": times_true(is_over, begins),
            "throttled_minutes": times_true(is_throttled, begins),
            "throttle_ms_peak": np.fmax.reduceat(throttle, begins),
            "present": np.bitwise_or.reduceat(np.int64(1) << minutes.minute, begins),
            "bins": pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), rate_bins(rate_max)),
            "violations": pa.ListArray.from_arrays(
                violations, _violations(minutes, throttle, violating)
            ),
        },
    )


def _means(micros: Numbers, begins: Numbers, counts: Numbers) -> Numbers:
    """Return the mean rate of each run of minutes, with ten decimals, halves up.

    As quotients of decimal numbers have it, which have six decimals before they are rounded to
    four: the rates are in 10^-6 units.
    """
    # Python's whole numbers: a sum may take more than 64 bits, and their quotient is the nearest.
    halves = micros >> 32, micros & 2**32 - 1
    high, low = (np.add.reduceat(each, begins).astype(object) for each in halves)
    sixth = (((high << 32) + low) * 2_000_000 // counts.astype(object) + 1) // 2
    means: Numbers = ((sixth + 50) // 100 / 10**10).astype(float)
    return means


def _violations(minutes: Minutes, throttle: Numbers, at: Numbers) -> pa.StructArray:
    """Return what is recorded of the minutes that were throttled or over the limit.

    What exceeds the limit waits for as long as the broker throttled: (rate_max - limit) x seconds,
    of which a minute has 60 at most. A broker that delays well keeps the rate at the limit, and
    hides what clients still hold back: the true figure may be larger.
    """
    decided = minutes.limits_at(at)
    rate_max, limit = minutes.rate_max[at], usable(minutes.limit[at])
    seconds = np.fmin(throttle[at] / 1000, 60.0)
    deferred = np.floor(np.minimum(np.fmax(rate_max - limit, 0.0) * seconds, _MOST_BYTES))
    values = {
        "minute": minutes.minute[at],
        "ratio": rate_max / limit,
        "throttle_ms": throttle[at],
        "deferred": _of_bytes(deferred.astype(np.int64), decided["key"]),
    }
    found = with_columns(decided, values).select(_OF_VIOLATION)
    return found.to_struct_array().combine_chunks()
