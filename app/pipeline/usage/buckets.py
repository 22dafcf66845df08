"""What each bucket did in each minute and hour on each broker, beside its limit.

Spark looks up the buckets of all minutes, and divides them by hour. A task of Arrow sums up a whole
hour at a time, column by column: Spark's own functions of arrays are interpreted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.quota_keys import QuotaKey
from app.pipeline.ingest.names import BYTE_KEYS
from app.pipeline.tables import BUCKET_HOUR, BUCKET_MINUTE
from app.pipeline.usage.measures import Numbers, begins_of, rate_bins, times_true, usable

_MICRO: Final = 1_000_000
_KEYS: Final = tuple(str(key) for key in QuotaKey)
_IS_BYTES: Final = np.isin(_KEYS, BYTE_KEYS)
_KEY_BITS: Final = 3
_SHARE_BITS: Final = 20
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


def bucket_minutes(rates: DataFrame, decided: DataFrame, *, broadcast: bool = True) -> DataFrame:
    """Return ``BUCKET_MINUTE``: sum up the members of each bucket in each minute on each broker.

    Args:
        rates: The columns of ``RATE_MINUTE``.
        decided: As ``decide`` returns them, of the hours of the rates.
        broadcast: Whether each worker gets them whole.
    """
    members = _members(rates, decided, shares=1, broadcast=broadcast)
    return members.groupBy("place").applyInArrow(_minutes_of, BUCKET_MINUTE.ddl)


def bucket_hours(
    rates: DataFrame, decided: DataFrame, *, shares: int, broadcast: bool = True
) -> DataFrame:
    """Return ``BUCKET_HOUR``: a task has all of the hours of a share of buckets, in order.

    Args:
        rates: The columns of ``RATE_MINUTE``.
        decided: As ``decide`` returns them, of the hours of the rates.
        shares: Into how many files the buckets of an hour are divided.
        broadcast: Whether each worker gets what was decided whole.
    """
    members = _members(rates, decided, shares=shares, broadcast=broadcast)
    hours = members.groupBy("place").applyInArrow(_hours_of, _HOUR_DDL)
    return hours.withColumn("rate_avg", sf.expr(_MEAN)).select(*BUCKET_HOUR.columns)


def _members(rates: DataFrame, decided: DataFrame, *, shares: int, broadcast: bool) -> DataFrame:
    """Return the minutes of series with their buckets and limits.

    Returns:
        cluster_id, ``place`` (the hour of the epoch in the upper bits, the share in the lower),
        bucket_id, ``spot`` (from its upper bits on the broker, the minute of the hour and the
        number of the key), limit, level, and the measures of ``RATE_MINUTE``.
    """
    in_hour = ("series_id", "dt", "hour")
    number = " ".join(f"when '{key}' then {code}" for code, key in enumerate(_KEYS))
    own = decided.selectExpr(
        f"xxhash64({', '.join(in_hour)}) as own_hash",
        *(f"{name} as own_{name}" for name in in_hour),
        *("valid_from", "valid_to", "bucket_id", "level", "limit"),
        f"cast(case key {number} end as bigint) as key_number",
        f"(unix_date(dt) * 24L + hour) * {2**_SHARE_BITS} + pmod(bucket_id, {shares}) as place",
    )
    table = sf.broadcast(own) if broadcast else own.hint("merge")
    conditions = [
        f"xxhash64({', '.join(in_hour)}) = own_hash",
        # In a form that is no key of a join: its only key is the hash, a long.
        *(f"{name} >= own_{name} AND {name} <= own_{name}" for name in in_hour),
        "ts >= valid_from AND ts < valid_to",
    ]
    minute = "cast(unix_seconds(ts) % 3600 div 60 as bigint)"
    spot = f"((broker_id * 64L + {minute}) * {2**_KEY_BITS} + key_number) as spot"
    return rates.join(table, sf.expr(" AND ".join(conditions))).selectExpr(
        *("cluster_id", "place", "bucket_id", spot, "limit", "cast(level as tinyint) as level"),
        *("rate_avg", "rate_max", "throttle_ms_avg", "throttle_ms_max", "samples"),
    )


@dataclass(frozen=True, slots=True)
class _Minutes:
    """The minutes of an hour's buckets, by cluster, bucket, broker and minute.

    Attributes:
        members: Those that they are the sums of.
        rows: A member of each minute: all of a bucket have the same limit at a time.
        bucket: Runs of the same bucket have the same number.
        spot: As of the members.
        micros: The sum of the rates in 10^-6 units, so that no order of the members shows in it.
        rate_max: The sum of the maxima.
        throttle_avg: The mean of the members' throttle times, ms; NaN without any.
        throttle_max: The longest of them; NaN without any.
        bytes_est: 60 seconds of the average rate, of each member rounded to bytes.
        contributors: Members with a sample.
    """

    members: pa.Table
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
        return self.spot >> _KEY_BITS & 63

    @property
    def hour_number(self) -> int:
        """The hour of the epoch."""
        return int(self.members["place"][0].as_py()) >> _SHARE_BITS

    @property
    def limits(self) -> Numbers:
        """NaN for none."""
        return _numbers(self.members, "limit")[self.rows]

    def columns(self, at: Numbers) -> dict[str, Any]:
        """Return what identifies the bucket, and its limit, at some of the minutes."""
        rows, number = self.rows[at], len(at)
        hour = self.hour_number
        taken = self.members.select(["cluster_id", "bucket_id", "limit", "level"]).take(rows)
        return {
            **{name: taken[name] for name in taken.column_names},
            "dt": pa.repeat(pa.scalar(hour // 24, pa.int32()), number).cast(pa.date32()),
            "hour": pa.repeat(pa.scalar(hour % 24, pa.int32()), number),
            "broker_id": pa.array((self.spot[at] >> _KEY_BITS + 6).astype(np.int32)),
            "key": pa.array(_KEYS).take(pa.array(self.keys(at))),
        }

    def keys(self, at: Numbers) -> Numbers:
        """Return the number of the key at some of the minutes."""
        keys: Numbers = self.spot[at] & 2**_KEY_BITS - 1
        return keys


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column; null is NaN."""
    return cast("Numbers", table[name].to_numpy())


def _micros(table: pa.Table, name: str) -> Numbers:
    """Return a column in 10^-6 units; null is 0."""
    micros: Numbers = np.rint(np.nan_to_num(_numbers(table, name)) * _MICRO).astype(np.int64)
    return micros


def _sum_members(members: pa.Table) -> _Minutes:
    """Sum up the members of each bucket in each minute on each broker."""
    clusters = members["cluster_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    buckets, spots = _numbers(members, "bucket_id"), _numbers(members, "spot")
    order = np.lexsort((spots, buckets, clusters))
    bucket_begins = begins_of(clusters[order], buckets[order])
    bucket = np.zeros(len(order), np.int64)
    bucket[bucket_begins] = 1
    bucket = np.cumsum(bucket)
    begins = begins_of(bucket, spots[order])
    micros = _micros(members, "rate_avg")
    has_throttle = ~np.isnan(_numbers(members, "throttle_ms_avg"))
    times = np.add.reduceat(has_throttle[order].astype(np.int64), begins)
    whole, rest = np.divmod(micros, _MICRO)

    def total(values: Numbers) -> Numbers:
        if np.add.reduceat(values[order].astype(float), begins).max() >= _END:
            message = "the rates of a bucket add up to more than 64 bits hold"
            raise OverflowError(message)
        sums: Numbers = np.add.reduceat(values[order], begins)
        return sums

    throttle = total(_micros(members, "throttle_ms_avg"))
    return _Minutes(
        members=members,
        rows=order[begins],
        bucket=bucket[begins],
        spot=spots[order][begins],
        micros=total(micros),
        rate_max=total(_micros(members, "rate_max")) / _MICRO,
        throttle_avg=np.where(times > 0, throttle / np.maximum(times, 1) / _MICRO, np.nan),
        throttle_max=np.fmax.reduceat(_numbers(members, "throttle_ms_max")[order], begins),
        bytes_est=total(whole * 60 + (rest * 60 + _MICRO // 2) // _MICRO),
        contributors=total((_numbers(members, "samples") > 0).astype(np.int64)),
    )


def _minutes_of(members: pa.Table) -> pa.Table:
    """Return the columns of ``BUCKET_MINUTE``."""
    minutes = _sum_members(members)
    at = np.arange(len(minutes.rows))
    seconds = minutes.hour_number * 3600 + minutes.minute * 60
    return _table(
        BUCKET_MINUTE.columns,
        {
            **minutes.columns(at),
            "ts": pa.array(seconds * _MICRO).cast(pa.timestamp("us", "UTC")),
            "rate_avg": minutes.micros / _MICRO,
            "rate_max": minutes.rate_max,
            "throttle_ms_avg": minutes.throttle_avg,
            "throttle_ms_max": minutes.throttle_max,
            "bytes_est": pa.array(minutes.bytes_est, mask=~_IS_BYTES[minutes.keys(at)]),
            "contributors": minutes.contributors.astype(np.int32),
        },
    )


def _hours_of(members: pa.Table) -> pa.Table:
    """Return the columns of ``_HOUR_DDL``."""
    minutes = _sum_members(members)
    begins = begins_of(minutes.bucket, minutes.spot >> _KEY_BITS + 6)
    counts = np.diff(np.append(begins, len(minutes.rows)))
    limits, rate_max = minutes.limits, minutes.rate_max
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
    rate_max, limit = minutes.rate_max[at], usable(minutes.limits[at])
    seconds = np.fmin(throttle[at] / 1000, 60.0)
    deferred = np.floor(np.minimum(np.fmax(rate_max - limit, 0.0) * seconds, _MOST_BYTES))
    is_bytes = _IS_BYTES[minutes.keys(at)]
    values = {
        "minute": pa.array(minutes.minute[at].astype(np.int8)),
        "level": minutes.members["level"].combine_chunks().take(pa.array(minutes.rows[at])),
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
