"""Sum up each bucket's hours and days beside its limit: ``bucket_hour``, ``utilization_daily``.

Reads ``rate_minute``, ``series`` and ``series_limit`` below the ``--input``s, and replaces the
hours that it finds there; their days are summed up anew from all of their hours. A ``dim_bucket``
comes along, so that whoever reads the results can name the entities.
"""

import argparse
from collections.abc import Sequence
from typing import Final

from pyspark.sql import functions as sf

from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, days_of, partitions_of
from app.pipeline.local_tables import local_columns
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import (
    Hours,
    Scope,
    carry_names,
    explain,
    say_if_empty,
    say_plan,
    settled,
)
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    UTILIZATION_DAILY,
)
from app.pipeline.usage.buckets import hours_of_buckets
from app.pipeline.usage.days import days_of_buckets
from app.pipeline.usage.facts import Facts, read_facts

WRITES: Final = (BUCKET_HOUR, UTILIZATION_DAILY)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "A finding is a day on which a bucket was over its limit on some broker."


def run(job: Job) -> None:
    """Write the tables for the hours of the input.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input lacks a table.
    """
    scope = Scope.of(job)
    job.require_options()
    with job.spark():
        if job.options.dry_run:
            say_plan(job, (*WRITES, DIM_BUCKET))
            return
        lakes, out = job.lakes(), job.lake()
        facts = read_facts(lakes, scope)
        carry_names(job, lakes, out, facts.hours)
        write_utilization(job, facts, out)
    publish(job, facts.hours)
    draw_if_asked(job, [*lakes, out])
    summarize(job, [*lakes, out])


def write_utilization(job: Job, facts: Facts, out: Lake) -> None:
    """Write the tables, and count into the report.

    Args:
        job: Gets counts and findings.
        facts: Of the hours that the run is about.
        out: Where to.
    """
    job.counts.setdefault("rows_out", {})
    write_hours(job, facts, out)
    write_days(job, out, days_of(facts.hours))
    say_if_empty(job)


def write_hours(job: Job, facts: Facts, out: Lake) -> None:
    """Sum up the hours of the facts."""
    hours = hours_of_buckets(facts.lakes, facts.hours)
    explain(job, BUCKET_HOUR, hours)
    job.counts["rows_out"][BUCKET_HOUR.name] = out.write(hours, BUCKET_HOUR, facts.hours)


def write_days(job: Job, out: Lake, days: Sequence[Partition]) -> None:
    """Sum up days from all of their hours, as often as another run replaces one of these."""

    def write(hours: Hours) -> tuple[int, int, int]:
        hours.remember(days)
        daily = days_of_buckets(hours.lakes, partitions_of(hours.lakes, BUCKET_HOUR, days))
        explain(job, UTILIZATION_DAILY, daily)
        rows = out.write(daily, UTILIZATION_DAILY, days, revision=hours.revision)
        return rows, *_count(out, days)

    rows, job.counts["rows_in"], over = settled([out], out, UTILIZATION_DAILY, write)
    job.counts["rows_out"][UTILIZATION_DAILY.name] = rows
    job.findings += over


def _count(out: Lake, days: Sequence[Partition]) -> tuple[int, int]:
    """Return how many minutes the days have, and on how many of them a limit was exceeded."""
    names = ("broker_id", "minutes_present", "minutes_over_100")
    here = local_columns([out], UTILIZATION_DAILY, days, names)
    if here is None:
        rows = out.read_in(UTILIZATION_DAILY, days).where("broker_id is not null")
        (counted,) = rows.agg(sf.sum(names[1]), sf.count_if(sf.col(names[2]) > 0)).collect()
        return counted[0] or 0, counted[1]
    of_brokers = here.filter(here["broker_id"].is_valid())
    minutes, over = (of_brokers[name].to_numpy() for name in names[1:])
    return int(minutes.sum()), int((over > 0).sum())
