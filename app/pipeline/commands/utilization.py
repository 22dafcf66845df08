"""Sum up each bucket's hours and days beside its limit: ``bucket_hour``, ``utilization_daily``.

Reads ``rate_minute``, ``series`` and ``series_limit`` below the ``--input``s, and replaces the
hours that it finds there; their days are summed up anew from all of their hours. A ``dim_bucket``
comes along, so that whoever reads the results can name the entities.
"""

import argparse
from collections.abc import Sequence
from typing import Final

import pyarrow.compute as pc

from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition, days_of
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import Hours, Scope, carry_names, explain, say_if_empty, settled
from app.pipeline.summary import summarize
from app.pipeline.tables import BUCKET_HOUR, DIM_BUCKET, UTILIZATION_DAILY
from app.pipeline.usage.buckets import facts_of, hours_of_buckets
from app.pipeline.usage.days import days_of_buckets

WRITES: Final = (BUCKET_HOUR, UTILIZATION_DAILY)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "A finding is a day on which a bucket was over its limit on some broker."


def run(job: Job) -> None:
    """Write the tables for the hours of the input.

    Raises:
        UsageError: An input lacks a table.
    """
    scope = Scope.of(job)
    if job.options.dry_run:
        job.say_plan((*WRITES, DIM_BUCKET))
        return
    lakes, out = job.lakes(), job.lake()
    hours = facts_of(lakes, scope)
    carry_names(job, lakes, out, hours)
    write_utilization(job, lakes, hours, out)
    publish(job, hours)
    draw_if_asked(job, [*lakes, out])
    summarize(job, [*lakes, out])


def write_utilization(
    job: Job, lakes: Sequence[Lake], hours: Sequence[Partition], out: Lake
) -> None:
    """Write the tables of hours of lakes, and count into the report."""
    made = hours_of_buckets(lakes, hours)
    explain(job, BUCKET_HOUR, made)
    of_hours = out.write(made, BUCKET_HOUR, hours)
    days = days_of(hours)

    def write(read: Hours) -> int:
        """Sum up days from all of their hours."""
        read.remember(days)
        daily = days_of_buckets(read.lakes, days)
        explain(job, UTILIZATION_DAILY, daily)
        return out.write(daily, UTILIZATION_DAILY, days, revision=read.revision)

    of_days = settled([out], out, UTILIZATION_DAILY, write)
    job.counts.setdefault("rows_out", {}).update(
        {BUCKET_HOUR.name: of_hours, UTILIZATION_DAILY.name: of_days}
    )
    counted = Columns(UTILIZATION_DAILY, ("broker_id", "minutes_present", "minutes_over_100"))
    rows = columns_of([out], counted, days)
    of_brokers = rows.filter(rows["broker_id"].is_valid())
    job.counts["rows_in"] = pc.sum(of_brokers["minutes_present"]).as_py() or 0
    job.findings += pc.sum(pc.greater(of_brokers["minutes_over_100"], 0)).as_py() or 0
    say_if_empty(job)
