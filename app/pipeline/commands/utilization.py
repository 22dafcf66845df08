"""Sum up each bucket's days beside its limit: ``utilization_daily`` and ``utilization_hist``.

Its hours are in ``bucket_hour``. Reads ``bucket_minute`` below each ``--input`` and replaces the
days that it finds there. A ``dim_bucket`` comes along, so that whoever reads the results can name
the entities.

Rates are counted in bins that grow by one percent. Counts of bins add up, so days, brokers and
partitions merge exactly and in any order. A percentile is the geometric middle of its bin, at most
0.5 % away from the rate of that rank.
"""

import argparse
import math
from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.domain.plan_impact import BIN_RATIO, ZERO_BIN
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import (
    Scope,
    carry_names,
    days_of,
    is_over,
    is_throttled,
    read_minutes,
    say_if_empty,
    say_plan,
    throttle_ms,
    usable_limit,
    write_result,
)
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_HOUR,
    BUCKET_MINUTE,
    DIM_BUCKET,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
)

PERCENTILES: Final = (50, 95, 99)

_LN_RATIO: Final = math.log(BIN_RATIO)
_BROKER_DAY: Final = ("cluster_id", "dt", "broker_id")
_BUCKET_DAY: Final = ("cluster_id", "dt", "key", "bucket_id")
_SUMS: Final = ("minutes_over_80", "minutes_over_100", "throttled_minutes", "bytes")
_MAXIMA: Final = ("peak", "throttle_ms_max")
_LATEST: Final = ("limit", "level")


def summarize_minutes(minutes: DataFrame) -> DataFrame:
    """Sum up each bucket's minutes by day and broker.

    Args:
        minutes: The columns of ``BUCKET_MINUTE``; rates are per second and broker.

    Returns:
        The columns of ``UTILIZATION_DAILY`` that need no other rows, where ``broker_id`` null pools
        the minutes of all brokers, and ``bins``: the bin of each minute's rate, in order. Limit and
        level are those of the day's last minute, in the pool those of the highest broker that has
        it.
    """
    measures = minutes.select(
        *_BUCKET_DAY,
        "broker_id",
        rate_bin(sf.col("rate_max")).alias("bin"),
        is_over(0.8).cast("int").alias("minutes_over_80"),
        is_over(1.0).cast("int").alias("minutes_over_100"),
        is_throttled().cast("int").alias("throttled_minutes"),
        sf.col("bytes_est").alias("bytes"),
        sf.col("rate_max").alias("peak"),
        throttle_ms().alias("throttle_ms_max"),
        *_LATEST,
        _position().alias("position"),
    )
    by_broker = measures.groupBy(*_BUCKET_DAY, "broker_id").agg(
        *_merge_measures(), sf.collect_list("bin").alias("bins")
    )
    # In order, days are summed up without a hash table of arrays, and one shuffle is for all.
    divided = by_broker.repartition(*_BUCKET_DAY).withColumn("broker_id", _with_pool())
    pooled = divided.sortWithinPartitions(*_BUCKET_DAY, "broker_id")
    return pooled.groupBy(*_BUCKET_DAY, "broker_id").agg(
        *_merge_measures(), sf.sort_array(sf.flatten(sf.collect_list("bins"))).alias("bins")
    )


def count_bins(days: DataFrame) -> DataFrame:
    """Count the minutes in each bin: the columns of ``UTILIZATION_HIST``.

    Args:
        days: As ``summarize_minutes`` returns them.
    """
    # Equal bins follow each other: where each run begins says how long it is, without a shuffle.
    bins = sf.col("bins")
    begins = sf.filter(
        sf.sequence(sf.lit(0), sf.size(bins) - 1),
        lambda nth: (nth == 0) | (bins[nth] != sf.get(bins, nth - 1)),
    )
    runs = days.select(*_BUCKET_DAY, "broker_id", bins, begins.alias("begins")).select(
        "*", sf.posexplode("begins").alias("run", "begin")
    )
    end = sf.coalesce(sf.get("begins", sf.col("run") + 1), sf.size(bins))
    n = (end - sf.col("begin")).cast("bigint").alias("n")
    return runs.select(*_BUCKET_DAY, "broker_id", bins[sf.col("begin")].alias("bin"), n)


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


def count_reporting_minutes(minutes: DataFrame) -> DataFrame:
    """Count the minutes in which a broker reported anything that day, as ``minutes_expected``.

    ``broker_id`` null adds up those of all brokers.
    """
    reported = minutes.groupBy(*_BROKER_DAY).agg(sf.count_distinct("ts").alias("n"))
    pooled = reported.withColumn("broker_id", _with_pool())
    return pooled.groupBy(*_BROKER_DAY).agg(sf.sum("n").alias("minutes_expected"))


def beside_limits(days: DataFrame, reporting: DataFrame) -> DataFrame:
    """Add percentiles, and what follows from the limit and from the minutes of the broker.

    Args:
        days: As ``summarize_minutes`` returns them.
        reporting: As ``count_reporting_minutes`` returns them, of the same minutes.

    Returns:
        The columns of ``UTILIZATION_DAILY``.
    """
    count, usable = sf.size("bins"), usable_limit(sf.col("limit"))
    percentiles = {
        f"p{percent}": sf.least(bin_middle(value_at_rank(percent, "bins")), "peak")
        for percent in PERCENTILES
    }
    same_broker_day = [
        sf.col(f"days.{name}").eqNullSafe(sf.col(f"reporting.{name}")) for name in _BROKER_DAY
    ]
    return (
        days.alias("days")
        .join(sf.broadcast(reporting).alias("reporting"), same_broker_day)
        .select("days.*", "minutes_expected")
        .withColumns({"minutes_present": count, **percentiles})
        .withColumn("coverage", sf.col("minutes_present") / sf.col("minutes_expected"))
        .withColumn("util_p99", sf.col("p99") / usable)
        .withColumn("headroom", usable - sf.col("p99"))
    )


def bucket_hours(minutes: DataFrame) -> DataFrame:
    """Return the hours of buckets on brokers, as ``BUCKET_HOUR`` has them.

    Rates are averaged as decimals: the result is the same whatever the order of the rows.

    Args:
        minutes: The columns of ``BUCKET_MINUTE``.
    """
    keys = ("cluster_id", "dt", "broker_id", "key", "bucket_id")
    hours = minutes.groupBy(*keys, sf.date_trunc("hour", "ts").alias("hour"))
    return hours.agg(
        sf.avg(sf.col("rate_avg").try_cast("decimal(30,6)")).cast("double").alias("rate_avg"),
        sf.max("rate_max").alias("rate_max"),
        sf.max_by("limit", "ts").alias("limit"),
        sf.max(sf.coalesce("throttle_ms_max", "throttle_ms_avg")).alias("throttle_ms_max"),
        sf.count(sf.lit(1)).cast("int").alias("minutes"),
    )


def value_at_rank(percent: int, values: str) -> Column:
    """Return the value of rank ceil(percent / 100 x n) of a sorted array; null of an empty one."""
    # In integers: 0.95 is no binary fraction.
    return sf.expr(f"get({values}, int(({percent} * size({values}) + 99) div 100) - 1)")


def _position() -> Column:
    """Number minutes and, within a minute, brokers in ascending order, in one long."""
    return sf.unix_seconds("ts") * sf.lit(2**32) + sf.col("broker_id")


def _merge_measures() -> list[Column]:
    return [
        *(sf.sum(name).alias(name) for name in _SUMS),
        *(sf.max(name).alias(name) for name in _MAXIMA),
        *(sf.max_by(name, "position").alias(name) for name in _LATEST),
        sf.max("position").alias("position"),
    ]


def _with_pool() -> Column:
    """Return a row's broker, and null for the pool of all brokers."""
    return sf.explode(sf.array("broker_id", sf.lit(None)))


WRITES: Final = (UTILIZATION_DAILY, UTILIZATION_HIST, BUCKET_HOUR)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "A finding is a day on which a bucket was over its limit on some broker."


def run(job: Job) -> None:
    """Write the tables for the days of the input.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has no ``bucket_minute``.
    """
    scope = Scope.of(job)
    job.require_options()
    with job.spark():
        if job.options.dry_run:
            say_plan(job, (*WRITES, DIM_BUCKET))
            return
        lakes, out = job.lakes(), job.lake()
        minutes = read_minutes(lakes, scope)
        carry_names(job, lakes, out, scope)
        days = days_of(lakes, BUCKET_MINUTE, scope)
        write_utilization(job, minutes, out, days)
    publish(job, minutes, days)
    draw_if_asked(job, [*lakes, out])
    summarize(job, [*lakes, out])


def write_utilization(job: Job, minutes: DataFrame, out: Lake, days: Iterable[Partition]) -> None:
    """Write the tables, and count into the report.

    Args:
        job: Gets counts and findings.
        minutes: The columns of ``BUCKET_MINUTE``.
        out: Where to.
        days: The partitions that the run is about.
    """
    days = tuple(days)
    summed = summarize_minutes(minutes).persist()
    daily = beside_limits(summed, count_reporting_minutes(minutes))
    write_result(job, daily, UTILIZATION_DAILY, out, days)
    # Arrays are moved to the tasks that write, and in order: there are many times more bins.
    by_day = summed.repartition(*UTILIZATION_HIST.partitions)
    ordered = by_day.sortWithinPartitions(*_BUCKET_DAY, "broker_id")
    write_result(job, count_bins(ordered), UTILIZATION_HIST, out, days)
    write_result(job, bucket_hours(minutes), BUCKET_HOUR, out, days)
    # Not observed: of a shuffle without rows Spark drops the plan, and with it what it observes.
    on_brokers = summed.where("broker_id is not null")
    [counted] = on_brokers.agg(
        sf.sum(sf.size("bins")).alias("minutes"),
        sf.count_if(sf.col("minutes_over_100") > 0).alias("over"),
    ).collect()
    summed.unpersist()
    job.counts["rows_in"] = counted.minutes or 0
    job.findings += counted.over
    say_if_empty(job)
