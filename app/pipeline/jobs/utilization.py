"""How much of its limit each bucket used on each day, by broker and over all brokers."""

from dataclasses import dataclass
from typing import Final, Self

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.jobs.bucket_rules import is_over, is_throttled, throttle_ms, usable_limit
from app.pipeline.jobs.utilization_histogram import bin_of, middle_of, rank_of

_BUCKET: Final = ("cluster_id", "dt", "key", "bucket_id", "broker_id")
_PERCENTILES: Final = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Utilization:
    """What ``utilization`` gives.

    Attributes:
        bins: One row per bucket, broker, limit and bin: everything else is added up from it, so
            keep it where both tables are written.
        daily: The columns of ``UTILIZATION_DAILY``.
        hist: The columns of ``UTILIZATION_HIST``.
    """

    bins: DataFrame
    daily: DataFrame
    hist: DataFrame

    @classmethod
    def of(cls, minutes: DataFrame) -> Self:
        """Sum up days.

        Args:
            minutes: The columns of ``BUCKET_MINUTE``; rates are per second and broker.
        """
        bins = _bins(minutes).persist()
        both = bins.unionByName(bins.withColumn("broker_id", sf.lit(None).cast("int")))
        hist = both.groupBy(*_BUCKET, "bin").agg(sf.sum("n").alias("n"))
        return cls(bins, _daily(both, _expected(minutes)), hist)


def _bins(minutes: DataFrame) -> DataFrame:
    """Count minutes by bin.

    The limit is part of the key, since it hardly ever changes in a day; so all buffers of the sums
    have a fixed width, and Spark sums in place.
    """
    rate = sf.col("rate_max")
    return minutes.groupBy(
        *_BUCKET,
        "level",
        "limit",
        bin_of(rate).alias("bin"),
        sf.col("broker_id").alias("on_broker"),
    ).agg(
        sf.count(sf.lit(1)).alias("n"),
        sf.sum("bytes_est").alias("bytes"),
        sf.max(rate).alias("peak"),
        sf.count_if(is_over(0.8)).alias("over_80"),
        sf.count_if(is_over(1.0)).alias("over_100"),
        sf.count_if(is_throttled()).alias("throttled"),
        sf.max(throttle_ms()).alias("throttle_ms_max"),
        sf.max("ts").alias("last_ts"),
    )


def _expected(minutes: DataFrame) -> DataFrame:
    """Count the minutes in which a broker said anything, and those of all brokers together."""
    said = minutes.select("cluster_id", "dt", "broker_id", "ts").distinct()
    day, broker = ["cluster_id", "dt"], sf.col("broker_id")
    counted = said.groupingSets([[*day, broker], day], *day, broker)
    return counted.agg(sf.count(sf.lit(1)).alias("minutes_expected"))


def _daily(both: DataFrame, expected: DataFrame) -> DataFrame:
    day = Window.partitionBy(*_BUCKET)
    ranked = both.withColumn("total", sf.sum("n").over(day)).withColumn(
        "reached", sf.sum("n").over(day.orderBy("bin"))
    )
    last = sf.max(sf.struct("last_ts", "on_broker", "limit", "level"))
    days = ranked.groupBy(*_BUCKET).agg(
        sf.sum("n").alias("minutes_present"),
        sf.sum("bytes").alias("bytes"),
        sf.max("peak").alias("peak"),
        sf.sum("over_80").alias("minutes_over_80"),
        sf.sum("over_100").alias("minutes_over_100"),
        sf.sum("throttled").alias("throttled_minutes"),
        sf.max("throttle_ms_max").alias("throttle_ms_max"),
        last.alias("last"),
        *(_percentile(percent).alias(f"p{percent}") for percent in _PERCENTILES),
    )
    return _with_ratios(_with_coverage(days, expected))


def _percentile(percent: int) -> Column:
    """Return the rate of the first bin that reaches the rank."""
    return middle_of(sf.min(sf.when(sf.col("reached") >= rank_of(percent, "total"), sf.col("bin"))))


def _with_coverage(days: DataFrame, expected: DataFrame) -> DataFrame:
    a_broker = sf.broadcast(expected.alias("expected"))
    same = [
        sf.col(f"days.{name}").eqNullSafe(sf.col(f"expected.{name}"))
        for name in ("cluster_id", "dt", "broker_id")
    ]
    return (
        days.alias("days")
        .join(a_broker, same)
        .select(
            "days.*",
            "minutes_expected",
            (sf.col("minutes_present") / sf.col("minutes_expected")).alias("coverage"),
        )
    )


def _with_ratios(days: DataFrame) -> DataFrame:
    limit = usable_limit(sf.col("last.limit"))
    return days.select(
        "*",
        sf.col("last.level").alias("level"),
        sf.col("last.limit").alias("limit"),
        (sf.col("p99") / limit).alias("util_p99"),
        (limit - sf.col("p99")).alias("headroom"),
    ).drop("last")
