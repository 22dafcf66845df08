"""How much of its limit each bucket used on each day, by broker and over all brokers."""

from datetime import date
from math import ceil
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.jobs.bucket_rules import is_over, is_throttled, throttle_ms, usable_limit
from app.pipeline.jobs.utilization_histogram import bin_of, middle_of
from app.pipeline.jobs.utilization_tasks import TOLD_DDL, Expected, Task

_MINUTES_OF_TASK: Final = 1_000_000
_EPOCH: Final = date(1970, 1, 1)


def utilization(minutes: DataFrame, place: str) -> DataFrame:
    """Let tasks write ``UTILIZATION_DAILY`` and ``UTILIZATION_HIST``.

    How many files there are follows from the minutes alone.

    Args:
        minutes: The columns of ``BUCKET_MINUTE``; rates are per second and broker.
        place: The folder above both tables.

    Returns:
        The columns of ``TOLD_DDL``, a row for each task that had any minutes. Each use does the
        work.
    """
    tasks = max(1, ceil(minutes.count() / _MINUTES_OF_TASK))
    task = Task(place, expected_minutes(minutes))
    spread = _measured(minutes).repartition(tasks, "cluster_id", "day", "key", "bucket_id")
    return spread.mapInArrow(task, TOLD_DDL)


def expected_minutes(minutes: DataFrame) -> Expected:
    """Count the minutes in which a broker said anything, and those of all brokers together."""
    said = minutes.select("cluster_id", "dt", "broker_id", "ts").distinct()
    day, broker = ["cluster_id", "dt"], sf.col("broker_id")
    counted = said.groupingSets([[*day, broker], day], *day, broker)
    rows = counted.agg(sf.count(sf.lit(1)).alias("n")).collect()
    return {(row.cluster_id, (row.dt - _EPOCH).days, row.broker_id): row.n for row in rows}


def _measured(minutes: DataFrame) -> DataFrame:
    rate = sf.col("rate_max")
    seconds = sf.unix_seconds("ts")
    return minutes.select(
        "cluster_id",
        sf.unix_date("dt").alias("day"),
        (sf.floor(seconds / 60) - sf.unix_date("dt") * 1440).cast("int").alias("minute"),
        *("key", "bucket_id", "broker_id", "level", "limit"),
        usable_limit(sf.col("limit")).alias("usable"),
        *("rate_max", "bytes_est"),
        bin_of(rate).alias("bin"),
        middle_of(bin_of(rate)).alias("middle"),
        is_over(0.8).cast("int").alias("over_80"),
        is_over(1.0).cast("int").alias("over_100"),
        is_throttled().cast("int").alias("throttled"),
        throttle_ms().alias("throttle_ms"),
    )
