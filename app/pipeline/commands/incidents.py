"""Find the stretches in which a bucket was throttled or over its limit: ``throttle_incident``.

Reads ``bucket_hour`` below each ``--input``, with ``dim_bucket`` and, for the first contributors,
``rate_minute``, ``series`` and ``series_limit`` where they are there too. Incidents that begin on a
day of the input are replaced, with those before it that go on; the others stay. An incident names
the quota that limits, and who sent most when it began.
"""

import argparse
from collections.abc import Sequence
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.by_partition import Columns, Reading, Share, by_partition, columns_of
from app.pipeline.job import Job
from app.pipeline.lake import Lake, arrow_schema
from app.pipeline.options import number_option
from app.pipeline.partitions import Partition, days_of, in_order
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import Hours, Scope, carry_names, say_if_empty, settled
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_HOUR,
    BY_HOUR,
    DIM_BUCKET,
    RATE_MINUTE,
    SERIES,
    SERIES_LIMIT,
    THROTTLE_INCIDENT,
)
from app.pipeline.usage.incident_days import stretches_around
from app.pipeline.usage.incidents import (
    CONTRIBUTORS,
    LIMITED,
    QUOTA_COLUMNS,
    contributors_of,
    latest_quotas,
)

_BYTES_OF_SHARE: Final = 30_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how long a pause may be."""
    parser.add_argument(
        "--gap",
        type=number_option(1, kind=int),
        default=1,
        metavar="MINUTES",
        help="join violating minutes that start at most this far apart; default 1",
    )
    parser.epilog = "A finding is an incident."


def run(job: Job) -> None:
    """Write the incidents that begin on the days of the input.

    Raises:
        UsageError: An input has no ``bucket_hour``.
    """
    scope = Scope.of(job)
    if job.options.dry_run:
        job.say_plan((THROTTLE_INCIDENT, DIM_BUCKET))
        return
    lakes, out = job.lakes(), job.lake()
    for lake in lakes:
        lake.require(BUCKET_HOUR)
    hours = scope.hours(lakes, BUCKET_HOUR)
    carry_names(job, lakes, out, hours)
    minutes = columns_of(lakes, Columns(BUCKET_HOUR, ("minutes",)), hours)["minutes"]
    job.counts["rows_in"] = pc.sum(minutes).as_py() or 0
    say_if_empty(job)
    days = write_incidents(job, lakes, out, days_of(hours))
    publish(job, hours, days)
    draw_if_asked(job, [*lakes, out])
    summarize(job, [*lakes, out])


def write_incidents(
    job: Job, lakes: Sequence[Lake], out: Lake, days: Sequence[Partition]
) -> Sequence[Partition]:
    """Write the incidents, count into the report, and return the days whose were replaced.

    Of lakes that overlap the first counts. The run is about ``days``.
    """

    def write(hours: Hours) -> tuple[Sequence[Partition], int]:
        found, about, read = stretches_around(hours, out, days, job.options.gap)
        rows = _complete(found, read, lakes, out)
        return about, out.write(rows, THROTTLE_INCIDENT, about, revision=hours.revision)

    about, count = settled(lakes, out, THROTTLE_INCIDENT, write)
    job.counts.setdefault("rows_out", {})[THROTTLE_INCIDENT.name] = count
    job.counts["incidents"] = count
    job.findings += count
    return about


def _complete(
    found: pa.Table, days: Sequence[Partition], lakes: Sequence[Lake], out: Lake
) -> pa.Table:
    """Return the rows of ``THROTTLE_INCIDENT`` of stretches of days."""
    named = {lake.name: lake for lake in [*lakes, out]}
    quotas = _quotas([*named.values()], days, pc.unique(found["bucket_id"]))
    rows = found.join(quotas, [*LIMITED], use_threads=False)
    rows = rows.join(_contributors(lakes, rows), "incident_id", use_threads=False)
    return rows.select(THROTTLE_INCIDENT.columns).cast(arrow_schema(THROTTLE_INCIDENT.ddl))


def _quotas(lakes: Sequence[Lake], days: Sequence[Partition], bucket_ids: pa.Array) -> pa.Table:
    """Return the quotas of the buckets that have incidents, as far as they are known."""
    columns = Columns(DIM_BUCKET, QUOTA_COLUMNS)
    found = [
        latest_quotas(columns_of([lake], columns, [day]), bucket_ids)
        for lake in lakes
        if lake.has(DIM_BUCKET)
        for day in days
    ]
    return latest_quotas(pa.concat_tables([columns.schema.empty_table(), *found]), bucket_ids)


def _contributors(lakes: Sequence[Lake], rows: pa.Table) -> pa.Table:
    """Return who began incidents, where series tell users and client-ids apart."""
    begun = rows.select(["cluster_id", "dt", "incident_id", "bucket_id", "broker_id", "start"])
    begun = begun.append_column("hour", pc.hour(begun["start"]))

    def make(share: Share, *columns: pa.Table) -> pa.Table:
        cluster, day, hour = share.partition.values()
        same = (pc.field("cluster_id") == cluster) & (pc.field("hour") == int(hour))
        own = begun.filter(same & (pc.field("dt") == date.fromisoformat(day)))
        return contributors_of(own.drop_columns([*BY_HOUR]), *columns)

    reading = Reading(
        [
            Columns(RATE_MINUTE, ("series_id", "broker_id", "ts", "rate_max"), "broker_id"),
            Columns(SERIES, ("series_id", "grain", "user", "client_id")),
            Columns(
                SERIES_LIMIT,
                ("series_id", "valid_from", "valid_to", "bucket_id"),
                keys=SERIES.order,
            ),
        ],
        _BYTES_OF_SHARE,
    )
    found = begun.group_by([*BY_HOUR]).aggregate([]).to_pylist()
    hours = in_order({name: f"{hour[name]}" for name in BY_HOUR} for hour in found)
    return by_partition(lakes, reading, hours, make).rows(CONTRIBUTORS).toArrow()
