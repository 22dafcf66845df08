"""Each bucket's days beside its limit: ``utilization_daily``, summed up from hours.

Rates are counted in bins that grow by one percent. Counts of bins add up, so hours, brokers and
partitions merge exactly and in any order. A percentile is the geometric middle of its bin, at most
0.5 % away from the rate of that rank.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.pipeline.tables import UTILIZATION_HIST
from app.pipeline.usage.measures import bin_middle, usable_limit, value_at_rank

PERCENTILES: Final = (50, 95, 99)

_BROKER_DAY: Final = ("cluster_id", "dt", "broker_id")
_BUCKET_DAY: Final = ("cluster_id", "dt", "key", "bucket_id")
_SUMS: Final = ("minutes_over_80", "minutes_over_100", "throttled_minutes", "bytes")
_MAXIMA: Final = ("peak", "throttle_ms_max")
_LATEST: Final = ("limit", "level")


def daily_utilization(hours: DataFrame) -> DataFrame:
    """Sum up the hours of each bucket by day and broker, and beside its limit.

    Args:
        hours: The columns of ``BUCKET_HOUR``, of whole days.

    Returns:
        The columns of ``UTILIZATION_DAILY``. A task has all of a bucket's day.
    """
    return _beside_limits(_sum_hours(hours), _count_reporting_minutes(hours))


def histogram(days: DataFrame) -> DataFrame:
    """Return the minutes in each bin of all brokers together: ``UTILIZATION_HIST``.

    Args:
        days: The columns of ``UTILIZATION_DAILY``.
    """
    bins = days.where("hist_bin is not null").select(
        *_BUCKET_DAY,
        sf.lit(None).cast("int").alias("broker_id"),
        sf.expr("posexplode(hist_bin) as (run, bin)"),
        "hist_n",
    )
    return bins.withColumn("n", sf.expr("hist_n[run]")).select(*UTILIZATION_HIST.columns)


def _sum_hours(hours: DataFrame) -> DataFrame:
    """Sum up each bucket's hours; ``broker_id`` null pools the minutes of all brokers.

    Limit and level are those of the day's last minute, in the pool those of the highest broker that
    has it. ``all_bins`` are the bins of all minutes, in order.
    """
    measures = hours.select(
        *_BUCKET_DAY,
        "broker_id",
        *_SUMS,
        sf.col("rate_max").alias("peak"),
        sf.col("throttle_ms_peak").alias("throttle_ms_max"),
        *_LATEST,
        _position().alias("position"),
        sf.col("bins").alias("all_bins"),
    )
    by_broker = measures.groupBy(*_BUCKET_DAY, "broker_id").agg(*_merge_measures())
    # In order, days are summed up without a hash table of arrays, and one shuffle is for all.
    divided = by_broker.repartition(*_BUCKET_DAY).withColumn("broker_id", _with_pool())
    pooled = divided.sortWithinPartitions(*_BUCKET_DAY, "broker_id")
    merged = pooled.groupBy(*_BUCKET_DAY, "broker_id").agg(*_merge_measures())
    return merged.withColumn("all_bins", sf.sort_array("all_bins"))


def _count_reporting_minutes(hours: DataFrame) -> DataFrame:
    """Count the minutes in which a broker reported anything that day, as ``minutes_expected``.

    ``broker_id`` null adds up those of all brokers.
    """
    present = hours.groupBy(*_BROKER_DAY, "hour").agg(sf.bit_or("present").alias("present"))
    with_pool = present.withColumn("broker_id", _with_pool())
    return with_pool.groupBy(*_BROKER_DAY).agg(
        sf.sum(sf.bit_count("present")).alias("minutes_expected")
    )


def _beside_limits(days: DataFrame, reporting: DataFrame) -> DataFrame:
    count, usable = sf.size("all_bins"), usable_limit(sf.col("limit"))
    percentiles = {
        f"p{percent}": sf.least(bin_middle(value_at_rank(percent, "all_bins")), "peak")
        for percent in PERCENTILES
    }
    same_broker_day = [
        sf.col(f"days.{name}").eqNullSafe(sf.col(f"reporting.{name}")) for name in _BROKER_DAY
    ]
    beside = (
        days.alias("days")
        .join(sf.broadcast(reporting).alias("reporting"), same_broker_day)
        .select("days.*", "minutes_expected")
        .withColumns({"minutes_present": count, **percentiles})
        .withColumn("coverage", sf.col("minutes_present") / sf.col("minutes_expected"))
        .withColumn("util_p99", sf.col("p99") / usable)
        .withColumn("headroom", usable - sf.col("p99"))
    )
    return _with_histogram(beside).drop("all_bins")


def _with_histogram(days: DataFrame) -> DataFrame:
    """Add the histogram of the pool: equal bins follow each other, and each run is counted."""
    bins = sf.when(sf.col("broker_id").isNull(), sf.col("all_bins"))
    begins = sf.filter(
        sf.sequence(sf.lit(0), sf.size("all_bins") - 1),
        lambda nth: (nth == 0) | (sf.get("all_bins", nth) != sf.get("all_bins", nth - 1)),
    )
    runs = days.withColumn("begins", sf.when(bins.isNotNull(), begins))
    end = "coalesce(get(begins, run + 1), size(all_bins))"
    return runs.withColumns(
        {
            "hist_bin": sf.expr("transform(begins, nth -> all_bins[nth])"),
            "hist_n": sf.expr(f"transform(begins, (nth, run) -> cast({end} - nth as bigint))"),
        }
    ).drop("begins")


def _position() -> Column:
    """Number last minutes and, within a minute, brokers in ascending order, in one long."""
    minute = "(unix_date(dt) * 1440L + hour * 60 + length(bin(present)) - 1)"
    return sf.expr(f"{minute} * {2**32}L + broker_id")


def _merge_measures() -> list[Column]:
    return [
        *(sf.sum(name).alias(name) for name in _SUMS),
        *(sf.max(name).alias(name) for name in _MAXIMA),
        *(sf.max_by(name, "position").alias(name) for name in _LATEST),
        sf.max("position").alias("position"),
        sf.flatten(sf.collect_list("all_bins")).alias("all_bins"),
    ]


def _with_pool() -> Column:
    """Return a row's broker, and null for the pool of all brokers."""
    return sf.explode(sf.array("broker_id", sf.lit(None)))
