"""Sum up each bucket's days beside its limit: ``utilization_daily`` and ``utilization_hist``.

Reads ``bucket_minute`` below each ``--input`` and replaces the days that it finds there. A
``dim_bucket`` comes along, so that whoever reads the results can name the entities.
"""

import argparse
from collections.abc import Iterable
from typing import Final

from pyspark.sql import SparkSession

from app.pipeline.folders import Partition, RunFolder
from app.pipeline.job import Job
from app.pipeline.jobs.utilization import utilization
from app.pipeline.jobs.utilization_minutes import BucketMinutes
from app.pipeline.plots.drawing import draw_if_asked
from app.pipeline.publish.postgres import publish
from app.pipeline.sinks.result_tables import carry_names, explain, say_plan
from app.pipeline.sources.buckets import Scope, days_of
from app.pipeline.sources.table_pieces import pieces_of
from app.pipeline.spark import TASKS_IN_PYTHON
from app.pipeline.storage import require_table
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, UTILIZATION_DAILY, UTILIZATION_HIST

_WRITES: Final = (UTILIZATION_DAILY, UTILIZATION_HIST)


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
        say_plan(job, reads=(BUCKET_MINUTE, DIM_BUCKET), writes=(*_WRITES, DIM_BUCKET))
        return
    out = job.output()
    try:
        require_table(folders, BUCKET_MINUTE)
        with job.spark(TASKS_IN_PYTHON) as session:
            pieces = pieces_of(folders, BUCKET_MINUTE, scope, files=True)
            carry_names(job, session, out, scope)
            days = days_of(folders, BUCKET_MINUTE, scope)
            write_utilization(job, session, BucketMinutes(pieces, scope), out, days)
            out.publish()
    finally:
        out.discard()
    publish(job, out)
    draw_if_asked(job, [*folders, out.folder])


def write_utilization(
    job: Job,
    session: SparkSession,
    minutes: BucketMinutes,
    out: RunFolder,
    days: Iterable[Partition],
) -> None:
    """Write both tables aside, and count into the report.

    Args:
        job: Gets counts and findings.
        session: Does it.
        minutes: Of ``BUCKET_MINUTE``.
        out: Where to.
        days: The partitions that the run is about.
    """
    for table in _WRITES:
        out.aside(table).mkdir(parents=True, exist_ok=True)
    told = utilization(session, minutes, str(out.aside(UTILIZATION_DAILY).parent))
    explain(job, UTILIZATION_DAILY, told)
    tasks = told.collect()
    for table in _WRITES:
        out.wrote(table, days)
    job.counts.setdefault("rows_out", {}).update(
        {
            UTILIZATION_DAILY.name: sum(task.daily for task in tasks),
            UTILIZATION_HIST.name: sum(task.hist for task in tasks),
        }
    )
    job.counts["rows_in"] = sum(task.minutes for task in tasks)
    job.findings += sum(task.over for task in tasks)
    if not job.counts["rows_in"]:
        job.say("the input has no minutes of this cluster and period.")
