"""Find the stretches in which a bucket was throttled or over its limit: ``throttle_incident``.

Reads ``bucket_hour`` below each ``--input``, with ``dim_bucket`` and, for the first contributors,
``rate_minute``, ``series`` and ``series_limit`` where they are there too. Incidents that begin on a
day of the input are replaced, with those before it that go on; the others stay. An incident names
the quota that limits, and who sent most when it began.
"""

import argparse
from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, days_of, is_within, read_first
from app.pipeline.options import whole_number
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
    RATE_MINUTE,
    SERIES,
    SERIES_LIMIT,
    THROTTLE_INCIDENT,
)
from app.pipeline.usage.incident_days import Stretches, stretches_around
from app.pipeline.usage.incidents import (
    PAIR,
    brokers_affected,
    few,
    with_contributors,
    with_quotas,
    with_status,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how long a pause may be."""
    parser.add_argument(
        "--gap",
        type=partial(whole_number, least=1),
        default=1,
        metavar="MINUTES",
        help="join violating minutes that start at most this far apart; default 1",
    )
    parser.epilog = "A finding is an incident."


def run(job: Job) -> None:
    """Write the incidents that begin on the days of the input.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has no ``bucket_hour``.
    """
    scope = Scope.of(job)
    job.require_options()
    with job.spark():
        if job.options.dry_run:
            say_plan(job, (THROTTLE_INCIDENT, DIM_BUCKET))
            return
        lakes, out = job.lakes(), job.lake()
        for lake in lakes:
            lake.require(BUCKET_HOUR)
        hours = scope.hours(lakes, BUCKET_HOUR)
        carry_names(job, lakes, out, hours)
        minutes = read_first(lakes, BUCKET_HOUR, hours).agg(sf.sum("minutes")).collect()
        job.counts["rows_in"] = minutes[0][0] or 0
        say_if_empty(job)
        days = write_incidents(job, lakes, out, days_of(hours))
    publish(job, hours, days)
    draw_if_asked(job, [*lakes, out])
    summarize(job, [*lakes, out])


def write_incidents(
    job: Job, lakes: Sequence[Lake], out: Lake, days: Sequence[Partition]
) -> Sequence[Partition]:
    """Write the incidents, count into the report, and return the days whose were replaced.

    Args:
        job: Has ``--gap``; gets counts and findings.
        lakes: Where the hours are; of those that overlap the first counts.
        out: Where to.
        days: That the run is about.
    """

    def write(hours: Hours) -> tuple[Sequence[Partition], int, int]:
        found = stretches_around(hours, out, days, job.options.gap)
        try:
            count = found.rows.where(is_within(found.about, THROTTLE_INCIDENT.partitions)).count()
            rows = out.nothing(THROTTLE_INCIDENT)
            if count:
                rows = _complete(found, lakes, out, count)
                rows = rows.repartition(*THROTTLE_INCIDENT.partitions).sortWithinPartitions(
                    *THROTTLE_INCIDENT.partitions, *THROTTLE_INCIDENT.order
                )
            explain(job, THROTTLE_INCIDENT, rows)
            written = out.write(
                rows, THROTTLE_INCIDENT, found.about, revision=hours.revision, is_sorted=True
            )
            return found.about, written, count
        finally:
            found.rows.unpersist()

    about, rows, count = settled(lakes, out, THROTTLE_INCIDENT, write)
    job.counts.setdefault("rows_out", {})[THROTTLE_INCIDENT.name] = rows
    job.counts["incidents"] = count
    job.findings += count
    return about


def _complete(found: Stretches, lakes: Sequence[Lake], out: Lake, count: int) -> DataFrame:
    """Return the columns of ``THROTTLE_INCIDENT`` of stretches that begin on the days."""
    own = found.rows.where(is_within(found.about, THROTTLE_INCIDENT.partitions))
    # All that is joined follows from the stretches themselves, which are made once.
    rows = with_contributors(own, *_pairs(lakes, found.about), number=count)
    rows = with_quotas(rows, _buckets_of(own, [*lakes, out], found.read), number=count)
    brokers = brokers_affected(found.rows, own, number=count)
    rows = rows.join(few(brokers, count), ["cluster_id", "incident_id"])
    last = found.ends.groupBy("cluster_id").agg(sf.max("last_ts").alias("last_ts"))
    return with_status(rows, last)


def _buckets_of(found: DataFrame, lakes: Sequence[Lake], days: Sequence[Partition]) -> DataFrame:
    """Return the names of the buckets that have incidents, as far as they are known."""
    own = found.select("cluster_id", "bucket_id").distinct()
    buckets = read_first(list({lake.name: lake for lake in lakes}.values()), DIM_BUCKET, days)
    return buckets.join(sf.broadcast(own), ["cluster_id", "bucket_id"], "left_semi")


def _pairs(
    lakes: Sequence[Lake], days: Sequence[Partition]
) -> tuple[DataFrame | None, DataFrame | None, DataFrame | None]:
    """Return minutes, the series that tell user and client-id apart, and limits."""
    pairs = read_first(lakes, SERIES, days).where(sf.col("grain") == PAIR)
    if pairs.isEmpty():
        return None, None, None
    limits = read_first(lakes, SERIES_LIMIT, days, SERIES.order)
    return read_first(lakes, RATE_MINUTE, days), pairs, limits
