"""Sum up each bucket's days beside its limit: ``utilization_daily`` and ``utilization_hist``.

Reads ``bucket_minute`` below each ``--input`` and replaces the days that it finds there. A
``dim_bucket`` comes along, so that whoever reads the results can name the entities.
"""

import argparse
from collections.abc import Iterable

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from app.pipeline.arrow_storage import read_files
from app.pipeline.folders import Partition, RunFolder
from app.pipeline.job import Job
from app.pipeline.jobs.utilization import Utilization
from app.pipeline.sinks.pictures import draw_if_asked
from app.pipeline.sinks.postgres import publish
from app.pipeline.sinks.result_tables import carry_names, say_plan, write_result
from app.pipeline.sources.buckets import Scope, days_of, read_minutes
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, UTILIZATION_DAILY, UTILIZATION_HIST


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "A finding is a day on which a bucket was over its limit on some broker."


def run(job: Job) -> None:
    """Write both tables for the days of the input.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has no ``bucket_minute``.
    """
    folders, scope = job.inputs(), Scope.of(job)
    if job.options.dry_run:
        writes = (UTILIZATION_DAILY, UTILIZATION_HIST, DIM_BUCKET)
        say_plan(job, reads=(BUCKET_MINUTE, DIM_BUCKET), writes=writes)
        return
    out = job.output()
    try:
        with job.spark() as session:
            minutes = read_minutes(session, folders, scope)
            carry_names(job, session, out, scope)
            write_utilization(job, minutes, out, days_of(folders, BUCKET_MINUTE, scope))
            out.publish()
    finally:
        out.discard()
    publish(job, out)
    draw_if_asked(job, [*folders, out.folder])


def write_utilization(
    job: Job, minutes: DataFrame, out: RunFolder, days: Iterable[Partition]
) -> None:
    """Write both tables aside, and count into the report.

    Args:
        job: Gets counts and findings.
        minutes: The columns of ``BUCKET_MINUTE``.
        out: Where to.
        days: The partitions that the run is about.
    """
    result = Utilization.of(minutes)
    write_result(job, result.daily, UTILIZATION_DAILY, out, days)
    write_result(job, result.hist, UTILIZATION_HIST, out, days)
    result.bins.unpersist()
    _count(job, out)


def _count(job: Job, out: RunFolder) -> None:
    """Count from what was written: it is small, and no Spark job is needed."""
    told = read_files(out.aside(UTILIZATION_DAILY), UTILIZATION_DAILY)
    told = told.filter(pc.is_valid(told["broker_id"]))
    job.counts["rows_in"] = pc.sum(told["minutes_present"]).as_py() or 0
    job.findings += pc.sum(pc.greater(told["minutes_over_100"], 0)).as_py() or 0
    if not told.num_rows:
        job.say("the input has no minutes of this cluster and period.")
