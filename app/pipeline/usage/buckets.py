"""What each bucket did in each minute and hour on each broker, beside its limit.

Spark divides minutes and what was decided for their series by hour. A task of Arrow looks up the
buckets of a whole hour, and sums them up, column by column: Spark's own functions of arrays are
interpreted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from app.domain.quota_keys import QuotaKey
from app.pipeline.tables import BUCKET_HOUR, BUCKET_MINUTE
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
_SHARE_BITS: Final = 20
_TIME_BITS: Final = 32
_MINUTES: Final = 60
_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 3_600_000_000
_VALID: Final = ("valid_from", "valid_to")
_MOST_BYTES: Final = 10**13
"""No broker moves more in a minute; it keeps the sums of absurd rates within 64 bits."""

_END: Final = 2.0**63

_HOUR_DDL: Final = f"{BUCKET_HOUR.ddl}, high bigint, low bigint"
"""``rate_avg`` is null yet: the sum of the rates in 10^-6 units is ``high`` x 2^20 + ``low``."""

_MEAN: Final = (
    "cast(cast(round((cast(high as decimal(20)) * 1048576 + low) / cast(minutes as decimal(4)), 4)"
    " as decimal(26, 4)) * 0.000001 as double)"
)
"""The mean of rates in 10^-6 units, as their decimal numbers have it."""


def bucket_minutes(rates: DataFrame, decided: DataFrame) -> DataFrame:
    """Return ``BUCKET_MINUTE``: sum up the members of each bucket in each minute on each broker.

    Args:
        rates: The columns of ``RATE_MINUTE``.
        decided: As ``decide`` returns them, of the hours of the rates.
    """
    return _summed(rates, decided, 1, _minutes_of, BUCKET_MINUTE.ddl)


def bucket_hours(rates: DataFrame, decided: DataFrame, *, shares: int) -> DataFrame:
    """Return ``BUCKET_HOUR``: a task has all of the hours of a share of brokers, in order.

    Args:
        rates: The columns of ``RATE_MINUTE``.
        decided: As ``decide`` returns them, of the hours of the rates.
        shares: Into how many files the brokers of an hour are divided.
    """
    hours = _summed(rates, decided, shares, _hours_of, _HOUR_DDL)
    return hours.withColumn("rate_avg", sf.expr(_MEAN)).select(*BUCKET_HOUR.columns)


def _summed(
    rates: DataFrame,
    decided: DataFrame,
    shares: int,
    sum_up: Callable[["_Minutes"], pa.Table],
    ddl: str,
) -> DataFrame:
    """Sum up hours, each by one task; all members of a bucket on a broker are of one share."""
    hour = "(unix_date(dt) * 24L + hour)"
    begin = f"{hour} * {2**_SHARE_BITS}"
    minutes = rates.selectExpr(
        f"{begin} + pmod(broker_id, {shares}) as place",
        "series_id",
        f"broker_id * {_MINUTES}L + unix_seconds(ts) % 3600 div 60 as spot",
        *("rate_avg", "rate_max", "throttle_ms_avg", "throttle_ms_max", "samples"),
    )
    number = " ".join(f"when '{key}' then {code}" for code, key in enumerate(_KEYS))
    limits = decided.selectExpr(
        *("cluster_id", "series_id", "bucket_id", "cast(level as tinyint) as level", "limit"),
        *(f"unix_micros({name}) - {hour} * {_HOUR_US} as {name}" for name in _VALID),
        f"case key {number} end as key_number",
        f"explode(sequence({begin}, {begin} + {shares - 1})) as place",
    )

    nothing = to_arrow_schema(cast("StructType", StructType.fromDDL(ddl))).empty_table()

    def hour_of(rates: pa.Table, limits: pa.Table) -> pa.Table:
        return sum_up(_sum_members(rates, limits)) if len(rates) and len(limits) else nothing

    both = minutes.groupBy("place").cogroup(limits.groupBy("place"))
    return both.applyInArrow(hour_of, ddl)


@dataclass(frozen=True, slots=True)
class _Minutes:
    """The minutes of an hour's buckets, by cluster, bucket, broker and minute.

    Attributes:
        hour: Of the epoch.
        limits: What was decided for the members.
        rows: The row of ``limits`` of each minute: all of a bucket have the same at a time.
        bucket: The number of the bucket.
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
        return _numbers(self.limits, "key_number")[self.rows[at]]


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column; null is NaN."""
    return cast("Numbers", table[name].to_numpy())


def _micros(table: pa.Table, name: str) -> Numbers:
    """Return a column in 10^-6 units; null is 0."""
    micros: Numbers = np.rint(np.nan_to_num(_numbers(table, name)) * _MICRO).astype(np.int64)
    return micros


def _look_up(rates: pa.Table, limits: pa.Table) -> tuple[Numbers, Numbers]:
    """Return which minutes have a limit of their series and time, and the row that has it."""
    series = np.unique(_numbers(limits, "series_id"))
    since, until = (np.clip(_numbers(limits, name), 0, _HOUR_US) for name in _VALID)
    begins = np.searchsorted(series, _numbers(limits, "series_id")) * 2**_TIME_BITS + since
    order = np.argsort(begins)
    found = np.minimum(np.searchsorted(series, _numbers(rates, "series_id")), len(series) - 1)
    is_there = series[found] == _numbers(rates, "series_id")
    time = _numbers(rates, "spot") % _MINUTES * _MINUTE_US
    last = np.searchsorted(begins[order], found * 2**_TIME_BITS + time, "right") - 1
    rows = order[last]
    is_own = is_there & (begins[rows] >> _TIME_BITS == found) & (time < until[rows])
    at = np.flatnonzero(is_own)
    return at, rows[at]


def _sum_members(rates: pa.Table, limits: pa.Table) -> _Minutes:
    """Sum up the members of each bucket in each minute on each broker."""
    at, rows = _look_up(rates, limits)
    members = rates.take(at)
    clusters, ids = (ranks_of(limits[name]) for name in ("cluster_id", "bucket_id"))
    buckets = (clusters * len(ids) + ids)[rows]
    spots = ranks_of(members["spot"])
    point = buckets * len(members) + spots
    order = np.argsort(point)
    point = point[order]
    begins = begins_of(point)
    micros = _micros(members, "rate_avg")
    has_throttle = ~np.isnan(_numbers(members, "throttle_ms_avg"))
    times = np.add.reduceat(has_throttle[order].astype(np.int64), begins)
    whole, rest = np.divmod(micros, _MICRO)

    def total(values: Numbers) -> Numbers:
        if np.add.reduceat(values[order].astype(float), begins).max(initial=0) >= _END:
            message = "the rates of a bucket add up to more than 64 bits hold"
            raise OverflowError(message)
        sums: Numbers = np.add.reduceat(values[order], begins)
        return sums

    throttle = total(_micros(members, "throttle_ms_avg"))
    first = order[begins]
    return _Minutes(
        hour=rates["place"][0].as_py() >> _SHARE_BITS,
        limits=limits,
        rows=rows[first],
        bucket=buckets[first],
        spot=_numbers(members, "spot")[first],
        micros=total(micros),
        rate_max=total(_micros(members, "rate_max")) / _MICRO,
        throttle_avg=np.where(times > 0, throttle / np.maximum(times, 1) / _MICRO, np.nan),
        throttle_max=np.fmax.reduceat(_numbers(members, "throttle_ms_max")[order], begins),
        bytes_est=total(whole * 60 + (rest * 60 + _MICRO // 2) // _MICRO),
        contributors=total((_numbers(members, "samples") > 0).astype(np.int64)),
    )


def _minutes_of(minutes: _Minutes) -> pa.Table:
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


def _hours_of(minutes: _Minutes) -> pa.Table:
    """Return the columns of ``_HOUR_DDL``."""
    begins = begins_of(minutes.bucket, minutes.spot // _MINUTES)
    counts = np.diff(np.append(begins, len(minutes.rows)))
    limits, rate_max = minutes.limit, minutes.rate_max
    throttle = np.fmax(minutes.throttle_avg, minutes.throttle_max)
    longest = np.where(np.isnan(minutes.throttle_max), minutes.throttle_avg, minutes.throttle_max)
    is_throttled, is_over = throttle > 0, rate_max > limits
    offsets = pa.array(np.append(begins, len(minutes.rows)).astype(np.int32))
    return _table(
        [*BUCKET_HOUR.columns, "high", "low"],
        {
            # Limit and level of the last minute, as all that follow it have them.
            **minutes.columns(begins + counts - 1),
            "minutes": counts.astype(np.int32),
            "rate_avg": pa.nulls(len(begins), pa.float64()),
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
            "high": np.add.reduceat(minutes.micros >> 20, begins),
            "low": np.add.reduceat(minutes.micros & 2**20 - 1, begins),
        },
    )


def _violations(
    minutes: _Minutes, throttle: Numbers, is_violating: Numbers, begins: Numbers
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
