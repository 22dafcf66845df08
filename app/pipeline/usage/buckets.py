"""What each bucket did in each minute and hour on each broker, beside its limit.

A task has the minutes of a whole hour and what was decided for their series, as columns: it reads
them itself where they are on this machine, else Spark divides them by hour. It looks up the
buckets, and sums them up: Spark's own functions of arrays are interpreted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.quota_keys import QuotaKey
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
    ranks_of,
    rate_bins,
    times_true,
    usable,
)

_MICRO: Final = 1_000_000
_KEYS: Final = tuple(str(key) for key in QuotaKey)
_IS_BYTES: Final = np.isin(_KEYS, BYTE_KEYS)
_TIME_BITS: Final = 32
_MINUTES: Final = 60
_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 3_600_000_000
_VALID: Final = ("valid_from", "valid_to")
_MOST_BYTES: Final = 10**13
"""No broker moves more in a minute; it keeps the sums of absurd rates within 64 bits."""

_DECIMALS: Final = 10**10

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
        ("cluster_id", "series_id", *_VALID, "bucket_id", "level", "limit"),
        keys=SERIES.order,
    ),
)
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

    def make(share: Share, rates: pa.Table, names: pa.Table, limits: pa.Table) -> pa.Table:
        if bucket_ids is not None:
            limits = limits.filter(pc.is_in(limits["bucket_id"], pa.array(bucket_ids, pa.int64())))
        day = (date.fromisoformat(share.partition["dt"]) - date(1970, 1, 1)).days
        hour = day * 24 + int(share.partition["hour"])
        return sum_up(sum_members(hour, rates, names, limits)).cast(schema)

    return by_partition(lakes, Reading(_FACTS, _BYTES_OF_SHARE), hours, make)


@dataclass(frozen=True, slots=True)
class Minutes:
    """The minutes of an hour's buckets, by cluster, bucket, broker and minute.

    Attributes:
        hour: Of the epoch.
        limits: What was decided for the members.
        rows: The row of ``limits`` of each minute: all of a bucket have the same at a time.
        spot: Broker and minute of the hour.
        micros: The sum of the rates in 10^-6 units, so that no order of the members shows in it.
        rate_max: The sum of the maxima.
        throttle_avg: The mean of the members' throttle times, ms; NaN without any.
        throttle_max: The longest of them; NaN without any.
        bytes_est: 60 seconds of the average rate, of each member rounded to bytes.
        contributors: Members with a sample.
    """

    hour: int
    limits: pa.Table
    keys_of_limits: Numbers
    rows: Numbers
    bucket: Numbers
    spot: Numbers
    micros: Numbers
    rate_max: Numbers
    throttle_avg: Numbers
    throttle_max: Numbers
    bytes_est: Numbers
    contributors: Numbers

    @property
    def minute(self) -> Numbers:
        """The minute of the hour."""
        return self.spot % _MINUTES

    @property
    def limit(self) -> Numbers:
        """NaN for none."""
        return _numbers(self.limits, "limit")[self.rows]

    def columns(self, at: Numbers) -> dict[str, Any]:
        """Return what identifies the bucket, and its limit, at some of the minutes."""
        number = len(at)
        taken = self.limits.select(["cluster_id", "bucket_id", "limit", "level"])
        taken = taken.take(self.rows[at])
        return {
            **{name: taken[name] for name in taken.column_names},
            "dt": pa.repeat(pa.scalar(self.hour // 24, pa.int32()), number).cast(pa.date32()),
            "hour": pa.repeat(pa.scalar(self.hour % 24, pa.int32()), number),
            "broker_id": pa.array((self.spot[at] // _MINUTES).astype(np.int32)),
            "key": pa.array(_KEYS).take(pa.array(self.keys(at))),
        }

    def keys(self, at: Numbers) -> Numbers:
        """Return the number of the key at some of the minutes."""
        return self.keys_of_limits[self.rows[at]]


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column; null is NaN."""
    return cast("Numbers", table[name].to_numpy())


def _micros(table: pa.Table, name: str) -> Numbers:
    """Return a column in 10^-6 units; null is 0."""
    micros: Numbers = np.rint(np.nan_to_num(_numbers(table, name)) * _MICRO).astype(np.int64)
    return micros


def _times(table: pa.Table, name: str, hour: int) -> Numbers:
    """Return times in microseconds since the start of the hour."""
    times: Numbers = table[name].cast(pa.int64()).to_numpy() - hour * _HOUR_US
    return times


def _look_up(
    rates: pa.Table, times: Numbers, limits: pa.Table, hour: int
) -> tuple[Numbers, Numbers]:
    """Return which minutes have a limit of their series and time, and the row that has it."""
    series = np.unique(_numbers(limits, "series_id"))
    if not len(series):
        return np.empty(0, int), np.empty(0, int)
    since, until = (np.clip(_times(limits, name, hour), 0, _HOUR_US) for name in _VALID)
    begins = np.searchsorted(series, _numbers(limits, "series_id")) * 2**_TIME_BITS + since
    order = np.argsort(begins)
    found = np.minimum(np.searchsorted(series, _numbers(rates, "series_id")), len(series) - 1)
    is_there = series[found] == _numbers(rates, "series_id")
    last = np.searchsorted(begins[order], found * 2**_TIME_BITS + times, "right") - 1
    rows = order[last]
    is_own = is_there & (begins[rows] >> _TIME_BITS == found) & (times < until[rows])
    at = np.flatnonzero(is_own)
    return at, rows[at]


def sum_members(hour: int, rates: pa.Table, names: pa.Table, limits: pa.Table) -> Minutes:
    """Sum up the members of each bucket in each minute on each broker.

    The hour is of the epoch; the columns are those of ``RATE_MINUTE``, ``SERIES`` and
    ``SERIES_LIMIT``.
    """
    number = pc.index_in(limits["series_id"], names["series_id"].combine_chunks())
    # Series without a name have no key, and their limits no use.
    limits = limits.append_column("key", names["key"].take(number)).filter(number.is_valid())
    minute = _times(rates, "ts", hour) // _MINUTE_US
    at, rows = _look_up(rates, minute * _MINUTE_US, limits, hour)
    members = rates.take(at)
    spot = _numbers(members, "broker_id").astype(np.int64) * _MINUTES + minute[at]
    clusters, ids = (ranks_of(limits[name]) for name in ("cluster_id", "bucket_id"))
    buckets = (clusters * len(ids) + ids)[rows]
    spots = np.unique(spot, return_inverse=True)[1]
    point = buckets * len(members) + spots
    order = np.argsort(point)
    point = point[order]
    begins = begins_of(point)
    micros = _micros(members, "rate_avg")
    has_throttle = ~np.isnan(_numbers(members, "throttle_ms_avg"))
    times = np.add.reduceat(has_throttle[order].astype(np.int64), begins)
    whole, rest = np.divmod(micros, _MICRO)

    def total(values: Numbers) -> Numbers:
        if np.add.reduceat(values[order].astype(float), begins).max(initial=0) >= 2.0**63:
            message = "the rates of a bucket add up to more than 64 bits hold"
            raise OverflowError(message)
        sums: Numbers = np.add.reduceat(values[order], begins)
        return sums

    throttle = total(_micros(members, "throttle_ms_avg"))
    first = order[begins]
    return Minutes(
        hour=hour,
        limits=limits,
        keys_of_limits=pc.index_in(limits["key"], pa.array(_KEYS)).to_numpy(),
        rows=rows[first],
        bucket=buckets[first],
        spot=spot[first],
        micros=total(micros),
        rate_max=total(_micros(members, "rate_max")) / _MICRO,
        throttle_avg=np.where(times > 0, throttle / np.maximum(times, 1) / _MICRO, np.nan),
        throttle_max=np.fmax.reduceat(_numbers(members, "throttle_ms_max")[order], begins),
        bytes_est=total(whole * 60 + (rest * 60 + _MICRO // 2) // _MICRO),
        contributors=total((_numbers(members, "samples") > 0).astype(np.int64)),
    )


def minutes_of(minutes: Minutes) -> pa.Table:
    """Return the columns of ``BUCKET_MINUTE``."""
    at = np.arange(len(minutes.rows))
    time = minutes.hour * _HOUR_US + minutes.minute * _MINUTE_US
    return _table(
        BUCKET_MINUTE.columns,
        {
            **minutes.columns(at),
            "ts": pa.array(time).cast(pa.timestamp("us", "UTC")),
            "rate_avg": minutes.micros / _MICRO,
            "rate_max": minutes.rate_max,
            "throttle_ms_avg": minutes.throttle_avg,
            "throttle_ms_max": minutes.throttle_max,
            "bytes_est": pa.array(minutes.bytes_est, mask=~_IS_BYTES[minutes.keys(at)]),
            "contributors": minutes.contributors.astype(np.int32),
        },
    )


def hours_of(minutes: Minutes) -> pa.Table:
    """Return the columns of ``BUCKET_HOUR``."""
    begins = begins_of(minutes.bucket, minutes.spot // _MINUTES)
    counts = np.diff(np.append(begins, len(minutes.rows)))
    limits, rate_max = minutes.limit, minutes.rate_max
    throttle = np.fmax(minutes.throttle_avg, minutes.throttle_max)
    longest = np.where(np.isnan(minutes.throttle_max), minutes.throttle_avg, minutes.throttle_max)
    is_throttled, is_over = throttle > 0, rate_max > limits
    offsets = pa.array(np.append(begins, len(minutes.rows)).astype(np.int32))
    return _table(
        BUCKET_HOUR.columns,
        {
            # Limit and level of the last minute, as all that follow it have them.
            **minutes.columns(begins + counts - 1),
            "minutes": counts.astype(np.int32),
            "rate_avg": _means(minutes.micros, begins, counts),
            "rate_max": np.maximum.reduceat(rate_max, begins),
            "throttle_ms_max": np.fmax.reduceat(longest, begins),
            "bytes": pa.array(
                np.add.reduceat(minutes.bytes_est, begins),
                mask=~_IS_BYTES[minutes.keys(begins)],
            ),
            "minutes_over_80": times_true(rate_max > 0.8 * limits, begins),
            "minutes_over_100": times_true(is_over, begins),
            "throttled_minutes": times_true(is_throttled, begins),
            "throttle_ms_peak": np.fmax.reduceat(throttle, begins),
            "present": np.bitwise_or.reduceat(np.int64(1) << minutes.minute, begins),
            "bins": pa.ListArray.from_arrays(offsets, pa.array(rate_bins(rate_max))),
            "violations": _violations(minutes, throttle, is_throttled | is_over, begins),
        },
    )


def _means(micros: Numbers, begins: Numbers, counts: Numbers) -> Numbers:
    """Return the mean rate of each run of minutes, with ten decimals, halves up.

    As quotients of decimal numbers have it, which have six decimals before they are rounded to
    four: the rates are in 10^-6 units.
    """
    # In two numbers, as the sum of an hour may take more than 64 bits.
    high, low = (np.add.reduceat(each, begins) for each in (micros >> 20, micros & 2**20 - 1))
    high, rest = np.divmod(high, counts)
    whole, rest = np.divmod((rest << 20) + low, counts)
    sixth = (rest * 2_000_000 + counts) // (2 * counts)
    decimals = whole * 10_000 + (sixth + 50) // 100
    unit = 2**20 * 10_000
    means: Numbers = (high * float(unit) + decimals) / _DECIMALS
    # Doubles beyond that are not exact; the quotient of Python's whole numbers is the nearest.
    large = np.flatnonzero(high >= 2**53 // unit)
    both = zip(high[large].tolist(), decimals[large].tolist(), strict=True)
    means[large] = [(upper * unit + lower) / _DECIMALS for upper, lower in both]
    return means


def _violations(
    minutes: Minutes, throttle: Numbers, is_violating: Numbers, begins: Numbers
) -> pa.Array:
    """Return the minutes that were throttled or over the limit, a list for each hour.

    What exceeds the limit waits for as long as the broker throttled: (rate_max - limit) x seconds,
    of which a minute has 60 at most. A broker that delays well keeps the rate at the limit, and
    hides what clients still hold back: the true figure may be larger.
    """
    at = np.flatnonzero(is_violating)
    rate_max, limit = minutes.rate_max[at], usable(minutes.limit[at])
    seconds = np.fmin(throttle[at] / 1000, 60.0)
    deferred = np.floor(np.minimum(np.fmax(rate_max - limit, 0.0) * seconds, _MOST_BYTES))
    is_bytes = _IS_BYTES[minutes.keys(at)]
    values = {
        "minute": pa.array(minutes.minute[at].astype(np.int8)),
        "level": minutes.limits["level"].combine_chunks().take(pa.array(minutes.rows[at])),
        "ratio": pa.array(rate_max / limit, from_pandas=True),
        "throttle_ms": pa.array(throttle[at], from_pandas=True),
        "deferred": pa.array(deferred.astype(np.int64), mask=~is_bytes),
    }
    first = np.searchsorted(at, np.append(begins, len(is_violating))).astype(np.int32)
    found = pa.StructArray.from_arrays([*values.values()], [*values])
    return pa.ListArray.from_arrays(pa.array(first), found)


def _table(names: Sequence[str], columns: dict[str, Any]) -> pa.Table:
    """Return columns in order; NaN of numbers is null."""
    arrays = (
        pa.array(columns[name], from_pandas=True)
        if isinstance(columns[name], np.ndarray)
        else columns[name]
        for name in names
    )
    return pa.table(dict(zip(names, arrays, strict=True)))
