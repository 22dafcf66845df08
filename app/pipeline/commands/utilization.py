"""Sum up each bucket's days beside its limit: ``utilization_daily`` and ``utilization_hist``.

Its hours are in ``bucket_hour``. Reads ``bucket_minute`` below each ``--input`` and replaces the
days that it finds there. A ``dim_bucket`` comes along, so that whoever reads the results can name
the entities.
"""

import argparse
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from app.pipeline.coverage import bucket_hours
from app.pipeline.job import Job
from app.pipeline.jobs.utilization import (
    beside_limits,
    count_bins,
    count_reporting_minutes,
    summarize_minutes,
)
from app.pipeline.lake import Lake, Partition
from app.pipeline.plots.pictures import draw_if_asked
from app.pipeline.publish.postgres import publish
from app.pipeline.sinks.result_tables import carry_names, say_plan, write_result
from app.pipeline.sources.buckets import Scope, days_of, read_minutes
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_HOUR,
    BUCKET_MINUTE,
    DIM_BUCKET,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
)

_WRITES: Final = (UTILIZATION_DAILY, UTILIZATION_HIST, BUCKET_HOUR)


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
            say_plan(job, reads=(BUCKET_MINUTE, DIM_BUCKET), writes=(*_WRITES, DIM_BUCKET))
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
    counted = Observation(UTILIZATION_DAILY.name)
    of_broker = sf.col("broker_id").isNotNull()
    observed = daily.observe(
        counted,
        sf.sum(sf.when(of_broker, sf.col("minutes_present"))).alias("minutes"),
        sf.count_if(of_broker & (sf.col("minutes_over_100") > 0)).alias("over"),
    )
    write_result(job, observed, UTILIZATION_DAILY, out, days)
    write_result(job, count_bins(summed), UTILIZATION_HIST, out, days)
    write_result(job, bucket_hours(minutes), BUCKET_HOUR, out, days)
    summed.unpersist()
    job.counts["rows_in"] = counted.get["minutes"] or 0
    job.findings += counted.get["over"]
    if not job.counts["rows_in"]:
        job.say("the input has no minutes of this cluster and period.")
