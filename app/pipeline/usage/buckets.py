"""What each bucket did in each minute and hour on each broker, beside its limit.

Minutes of series are divided by hour and bucket once, and sorted by numbers alone: the sums of a
minute and those of an hour then follow from rows that follow each other.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.domain.quota_keys import QuotaKey
from app.pipeline.tables import BUCKET_HOUR, BUCKET_MINUTE
from app.pipeline.usage.measures import (
    deferred_bytes,
    is_over,
    is_throttled,
    is_violating,
    rate_bin,
    throttle_ms,
    usable_limit,
)

_MICRO: Final = 1_000_000
_KEYS: Final = tuple(str(key) for key in QuotaKey)
_BUCKET: Final = ("place", "bucket_id", "broker_key", "hour_number", "share", "cluster_id")
_MINUTE: Final = (*_BUCKET, "minute")
_BYTE_KEYS: Final = (str(QuotaKey.PRODUCER_BYTE_RATE), str(QuotaKey.CONSUMER_BYTE_RATE))


def bucket_minutes(rates: DataFrame, decided: DataFrame, *, broadcast: bool = True) -> DataFrame:
    """Return ``BUCKET_MINUTE``: sum up the members of each bucket in each minute on each broker.

    Args:
        rates: The columns of ``RATE_MINUTE``.
        decided: As ``decide`` returns them, of the hours of the rates.
        broadcast: Whether each worker gets them whole.
    """
    columns = _columns()
    minutes = _sum_members(rates, decided, shares=1, broadcast=broadcast)
    time = sf.expr("timestamp_seconds(hour_number * 3600L + minute * 60)")
    named = minutes.withColumns({"ts": time, **columns})
    return named.select(*BUCKET_MINUTE.columns)


def bucket_hours(
    rates: DataFrame, decided: DataFrame, *, shares: int, broadcast: bool = True
) -> DataFrame:
    """Return ``BUCKET_HOUR``, in its order: a task has all of the hours of a share of buckets.

    Args:
        rates: The columns of ``RATE_MINUTE``.
        decided: As ``decide`` returns them, of the hours of the rates.
        shares: Into how many files the buckets of an hour are divided.
        broadcast: Whether each worker gets what was decided whole.
    """
    minutes = _sum_members(rates, decided, shares=shares, broadcast=broadcast)
    by_hour = minutes.withColumns(_columns()).groupBy(*_BUCKET)
    violation = sf.struct(
        sf.col("minute").cast("tinyint").alias("minute"),
        sf.col("level").cast("tinyint").alias("level"),
        (sf.col("rate_max") / usable_limit(sf.col("limit"))).alias("ratio"),
        throttle_ms().alias("throttle_ms"),
        deferred_bytes().alias("deferred"),
    )
    hours = by_hour.agg(
        # Of the last minute, as all that follow it have it.
        sf.max_by("limit", "minute").alias("limit"),
        sf.max_by("level", "minute").alias("level"),
        sf.count(sf.lit(1)).alias("minutes"),
        sf.sum(sf.expr("shiftright(micros, 20)")).alias("high"),
        sf.sum(sf.expr("micros & 1048575")).alias("low"),
        sf.max("rate_max").alias("rate_max"),
        sf.max(sf.coalesce("throttle_ms_max", "throttle_ms_avg")).alias("throttle_ms_max"),
        sf.sum("bytes_est").alias("bytes"),
        sf.count_if(is_over(0.8)).alias("minutes_over_80"),
        sf.count_if(is_over(1.0)).alias("minutes_over_100"),
        sf.count_if(is_throttled()).alias("throttled_minutes"),
        sf.max(throttle_ms()).alias("throttle_ms_peak"),
        sf.bit_or(sf.expr("shiftleft(1L, minute)")).alias("present"),
        sf.collect_list(rate_bin(sf.col("rate_max"))).alias("bins"),
        sf.collect_list(sf.when(is_violating(), violation)).alias("violations"),
    )
    named = hours.withColumns({"rate_avg": sf.expr(_MEAN), **_columns()})
    return named.select(*BUCKET_HOUR.columns)


_MEAN: Final = (
    "cast(cast(round((cast(high as decimal(20)) * 1048576 + low) / cast(minutes as decimal(4)), 4)"
    " as decimal(26, 4)) * 0.000001 as double)"
)
"""The mean of rates in 10^-6 units, as their decimal numbers have it."""


def _sum_members(
    rates: DataFrame, decided: DataFrame, *, shares: int, broadcast: bool
) -> DataFrame:
    """Sum up the members of each bucket in each minute on each broker.

    Sums are those of integers of 10^-6 units, so that no order of the rows shows in them.

    Returns:
        The columns of ``_MINUTE``, in this order, and those of a minute.
    """
    members = _with_buckets(rates, decided, broadcast=broadcast).select(
        "cluster_id",
        "bucket_id",
        sf.expr("cast(unix_seconds(ts) div 3600 as int)").alias("hour_number"),
        sf.expr("cast(unix_seconds(ts) % 3600 div 60 as int)").alias("minute"),
        # Broker and key in one number: a bucket has one key.
        sf.expr("shiftleft(cast(broker_id as bigint), 3) | key_number").alias("broker_key"),
        _micros("rate_avg").alias("micros"),
        _micros("rate_max").alias("micros_max"),
        _micros("throttle_ms_avg").alias("throttle_micros"),
        "throttle_ms_max",
        "limit",
        "level",
        # Without a sample nobody contributed: the broker was scraped, and the rate is 0.
        sf.when(sf.col("samples") > 0, sf.lit(1)).alias("contributor"),
    )
    placed = members.withColumns(
        {
            "place": sf.expr(
                "shiftleft(cast(hour_number as bigint), 36) | shiftrightunsigned(bucket_id, 28)"
            ),
            "share": sf.expr(f"cast(pmod(bucket_id, {shares}) as int)"),
        }
    )
    # In order, minutes are summed up without a hash table of them all. The optimizer keeps that
    # order for the sake of max_by.
    ordered = placed.repartition("hour_number", "share").sortWithinPartitions(*_MINUTE)
    sums = ordered.groupBy(*_MINUTE).agg(
        sf.sum("micros").alias("micros"),
        sf.sum("micros_max").alias("micros_max"),
        sf.sum("throttle_micros").alias("throttle_micros"),
        sf.count("throttle_micros").alias("throttle_n"),
        sf.max("throttle_ms_max").alias("throttle_ms_max"),
        sf.sum(
            sf.expr("(micros div 1000000 * 60 + (micros % 1000000 * 60 + 500000) div 1000000)")
        ).alias("bytes_est"),
        # All members of a bucket have the same limit at a time: it follows from the tags.
        sf.max_by("limit", "level").alias("limit"),
        sf.max("level").alias("level"),
        sf.count("contributor").cast("int").alias("contributors"),
    )
    is_bytes = sf.expr("broker_key & 7").isin([_KEYS.index(key) for key in _BYTE_KEYS])
    throttle = sf.col("throttle_micros") / sf.nullif("throttle_n", sf.lit(0)) / _MICRO
    return sums.withColumns(
        {
            "rate_avg": sf.col("micros") / _MICRO,
            "rate_max": sf.col("micros_max") / _MICRO,
            "throttle_ms_avg": throttle,
            "bytes_est": sf.when(is_bytes, sf.col("bytes_est")),
        }
    )


def _with_buckets(rates: DataFrame, decided: DataFrame, *, broadcast: bool) -> DataFrame:
    """Add the bucket, limit, level and number of the key of each minute of a series."""
    in_hour = ("series_id", "dt", "hour")
    number = " ".join(f"when '{key}' then {code}" for code, key in enumerate(_KEYS))
    own = decided.selectExpr(
        f"xxhash64({', '.join(in_hour)}) as own_hash",
        *(f"{name} as own_{name}" for name in in_hour),
        *("valid_from", "valid_to", "bucket_id", "level", "limit"),
        f"case key {number} end as key_number",
    )
    table = sf.broadcast(own) if broadcast else own.hint("merge")
    conditions = [
        f"xxhash64({', '.join(in_hour)}) = own_hash",
        # In a form that is no key of a join: its only key is the hash, a long.
        *(f"{name} >= own_{name} AND {name} <= own_{name}" for name in in_hour),
        "ts >= valid_from AND ts < valid_to",
    ]
    return rates.join(table, sf.expr(" AND ".join(conditions)))


def _micros(name: str) -> Column:
    return sf.rint(sf.col(name) * _MICRO).cast("bigint")


def _columns() -> dict[str, Column]:
    """Return what the numbers of a bucket say."""
    keys: Sequence[Column] = [sf.lit(key) for key in _KEYS]
    return {
        "dt": sf.expr("date_from_unix_date(hour_number div 24)"),
        "hour": sf.expr("hour_number % 24"),
        "broker_id": sf.expr("cast(shiftright(broker_key, 3) as int)"),
        "key": sf.get(sf.array(*keys), sf.expr("cast(broker_key & 7 as int)")),
    }
