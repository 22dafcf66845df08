"""Find the stretches in which a bucket was throttled or over its limit: ``throttle_incident``.

Reads ``bucket_hour`` below each ``--input``, with ``dim_bucket`` and, for the first contributors,
``rate_minute``, ``series`` and ``series_limit`` where they are there too. Incidents that begin on a
day of the input are replaced, with those before it that went on; the others stay. An incident names
the quota that limits, and who sent most when it began.
"""

import argparse
from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, days_of, read_first
from app.pipeline.options import whole_number
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import (
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
from app.pipeline.usage.incidents import (
    PAIR,
    find_stretches,
    last_minutes,
    with_brokers,
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
) -> list[Partition]:
    """Write the incidents, count into the report, and return the days that were replaced.

    Args:
        job: Has ``--gap``; gets counts and findings.
        lakes: Where the hours are; of those that overlap the first counts.
        out: Where to.
        days: That the run is about.
    """
    days = _with_open(out, days)

    def write(hours: DataFrame) -> tuple[int, int]:
        stretches = find_stretches(hours, job.options.gap).persist()
        try:
            found = stretches.groupBy(*THROTTLE_INCIDENT.partitions).count().collect()
            filled = [{"cluster_id": row.cluster_id, "dt": f"{row.dt}"} for row in found]
            count = sum(row["count"] for row in found)
            if not count:
                return out.write(out.nothing(THROTTLE_INCIDENT), THROTTLE_INCIDENT, days), 0
            buckets = _buckets_of(stretches, [*lakes, out], days)
            rows = with_quotas(with_brokers(stretches), buckets)
            rows = with_contributors(rows, *_pairs(lakes, days), count)
            rows = with_status(rows, last_minutes(hours))
            spread = rows.repartition(*THROTTLE_INCIDENT.partitions)
            explain(job, THROTTLE_INCIDENT, spread)
            return out.write(spread, THROTTLE_INCIDENT, days, filled=filled), count
        finally:
            stretches.unpersist()

    rows, count = settled(lakes, days, write)
    job.counts.setdefault("rows_out", {})[THROTTLE_INCIDENT.name] = rows
    job.counts["incidents"] = count
    job.findings += count
    return days


def _with_open(out: Lake, days: Sequence[Partition]) -> list[Partition]:
    """Add the days from the start of an incident on that was open when these days came."""
    clusters = [{"cluster_id": name} for name in sorted({day["cluster_id"] for day in days})]
    stored = out.read_in(THROTTLE_INCIDENT, clusters).where("status = 'open'")
    starts = stored.select("cluster_id", "dt").collect()
    found = {(day["cluster_id"], day["dt"]) for day in days}
    for row in set(starts):
        first = min(date.fromisoformat(dt) for name, dt in found if name == row.cluster_id)
        between = range((first - row.dt).days)
        found |= {(row.cluster_id, f"{row.dt + timedelta(days=number)}") for number in between}
    return [{"cluster_id": name, "dt": dt} for name, dt in sorted(found)]


def _buckets_of(found: DataFrame, lakes: Sequence[Lake], days: Sequence[Partition]) -> DataFrame:
    """Return the names of the buckets that have incidents, as far as they are known."""
    own = found.select("cluster_id", "bucket_id").distinct()
    buckets = read_first(list({lake.name: lake for lake in lakes}.values()), DIM_BUCKET, days)
    return buckets.join(sf.broadcast(own), ["cluster_id", "bucket_id"], "left_semi")


def _pairs(
    lakes: Sequence[Lake], days: Sequence[Partition]
) -> tuple[DataFrame | None, DataFrame | None]:
    """Return minutes, and what was decided of series that tell user and client-id apart."""
    pairs = read_first(lakes, SERIES, days).where(sf.col("grain") == PAIR)
    if pairs.isEmpty():
        return None, None
    limits = read_first(lakes, SERIES_LIMIT, days, SERIES.order)
    decided = pairs.join(limits, [*SERIES.partitions, "series_id"])
    return read_first(lakes, RATE_MINUTE, days), decided
