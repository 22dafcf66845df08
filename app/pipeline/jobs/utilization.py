"""How much of its limit each bucket used on each day, by broker and over all brokers.

Rates are counted in bins that grow by one percent. Counts of bins add up, so days, brokers and
partitions merge exactly and in any order. A percentile is the geometric middle of its bin, at most
0.5 % away from the rate of that rank.
"""

import math
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.jobs.bucket_rules import is_over, is_throttled, throttle_ms, usable_limit

ZERO_BIN: Final = -(2**31)
"""The bin of a rate of zero: the smallest int."""

PERCENTILES: Final = (50, 95, 99)

_LN_RATIO: Final = math.log(1.01)
_BROKER_DAY: Final = ("cluster_id", "dt", "broker_id")
_BUCKET_DAY: Final = ("cluster_id", "dt", "key", "bucket_id")
_SUMS: Final = ("n", "over_80", "over_100", "throttled", "bytes")
_MAXIMA: Final = ("peak", "throttle_ms_max")
_LATEST: Final = ("limit", "level")


def count_rates(minutes: DataFrame) -> DataFrame:
    """Count each bucket's minutes by day, broker and bin of ``rate_max``.

    Args:
        minutes: The columns of ``BUCKET_MINUTE``; rates are per second and broker.

    Returns:
        The columns of ``UTILIZATION_HIST``, where ``broker_id`` null pools the minutes of all
        brokers; and what ``summarize_days`` adds up of them.
    """
    measures = minutes.select(
        *_BUCKET_DAY,
        "broker_id",
        rate_bin(sf.col("rate_max")).alias("bin"),
        sf.lit(1).cast("bigint").alias("n"),
        is_over(0.8).cast("bigint").alias("over_80"),
        is_over(1.0).cast("bigint").alias("over_100"),
        is_throttled().cast("bigint").alias("throttled"),
        sf.col("bytes_est").alias("bytes"),
        sf.col("rate_max").alias("peak"),
        throttle_ms().alias("throttle_ms_max"),
        *_LATEST,
        _position().alias("position"),
    )
    # One shuffle, by bucket and day, serves all that follows.
    by_broker = _merge_bins(measures.repartition(*_BUCKET_DAY))
    return _merge_bins(_with_pool(by_broker))


def rate_bin(rate: Column) -> Column:
    """Return the bin of a rate: floor(ln(rate) / ln(1.01)).

    Spark's logarithm is Java's StrictMath, so a rate on a border has the same bin on any machine.
    """
    number = sf.floor(sf.ln(rate) / sf.lit(_LN_RATIO)).cast("int")
    return sf.when(rate > 0, number).otherwise(sf.lit(ZERO_BIN))


def bin_middle(number: Column) -> Column:
    """Return the rate that stands for a bin: its geometric middle, 0 for the bin of zero."""
    middle = sf.exp((number + sf.lit(0.5)) * sf.lit(_LN_RATIO))
    return sf.when(number == ZERO_BIN, sf.lit(0.0)).otherwise(middle)


def percentile_rank(percent: int, count: str) -> Column:
    """Return ceil(percent / 100 x count), in integers: 0.95 is no binary fraction."""
    return sf.expr(f"({percent} * {count} + 99) div 100")


def count_reporting_minutes(minutes: DataFrame) -> DataFrame:
    """Count the minutes in which a broker reported anything that day, as ``minutes_expected``.

    ``broker_id`` null adds up those of all brokers.
    """
    reporting = _with_pool(minutes.select(*_BROKER_DAY, "ts").distinct())
    return reporting.groupBy(*_BROKER_DAY).agg(sf.count(sf.lit(1)).alias("minutes_expected"))


def summarize_days(bins: DataFrame, reporting: DataFrame) -> DataFrame:
    """Sum up days beside their limits.

    Args:
        bins: As ``count_rates`` returns them.
        reporting: As ``count_reporting_minutes`` returns them, of the same minutes.

    Returns:
        The columns of ``UTILIZATION_DAILY``. Limit and level are those of the day's last minute,
        in the pool those of the highest broker that has it.
    """
    by_rate = Window.partitionBy(*_BUCKET_DAY, "broker_id").orderBy("bin")
    all_bins = by_rate.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    ranked = bins.withColumns(
        {"reached": sf.sum("n").over(by_rate), "total": sf.sum("n").over(all_bins)}
    )
    days = ranked.groupBy(*_BUCKET_DAY, "broker_id").agg(
        *_merged_measures(),
        *(
            sf.min(
                sf.when(sf.col("reached") >= percentile_rank(percent, "total"), sf.col("bin"))
            ).alias(f"p{percent}")
            for percent in PERCENTILES
        ),
    )
    expected = sf.broadcast(reporting).alias("reporting")
    same_broker_day = [
        sf.col(f"days.{name}").eqNullSafe(sf.col(f"reporting.{name}")) for name in _BROKER_DAY
    ]
    known = days.alias("days").join(expected, same_broker_day).select("days.*", "minutes_expected")
    percentiles = {
        f"p{percent}": sf.least(bin_middle(sf.col(f"p{percent}")), "peak")
        for percent in PERCENTILES
    }
    usable = usable_limit(sf.col("limit"))
    return (
        known.withColumns(percentiles)
        .withColumnsRenamed(
            {
                "n": "minutes_present",
                "over_80": "minutes_over_80",
                "over_100": "minutes_over_100",
                "throttled": "throttled_minutes",
            }
        )
        .withColumn("coverage", sf.col("minutes_present") / sf.col("minutes_expected"))
        .withColumn("util_p99", sf.col("p99") / usable)
        .withColumn("headroom", usable - sf.col("p99"))
    )


def _position() -> Column:
    """Number minutes and, within a minute, brokers in ascending order, in one long."""
    return sf.unix_seconds("ts") * sf.lit(2**32) + sf.col("broker_id")


def _merge_bins(rows: DataFrame) -> DataFrame:
    return rows.groupBy(*_BUCKET_DAY, "broker_id", "bin").agg(*_merged_measures())


def _merged_measures() -> list[Column]:
    return [
        *(sf.sum(name).alias(name) for name in _SUMS),
        *(sf.max(name).alias(name) for name in _MAXIMA),
        *(sf.max_by(name, "position").alias(name) for name in _LATEST),
        sf.max("position").alias("position"),
    ]


def _with_pool(rows: DataFrame) -> DataFrame:
    """Add each row once more for the pool of all brokers."""
    return rows.withColumn("broker_id", sf.explode(sf.array("broker_id", sf.lit(None))))
