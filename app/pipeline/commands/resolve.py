"""Find what limits each series in each hour: ``series_limit`` and ``dim_bucket``.

Reads ``series`` below each ``--input`` and ``quota_version`` below ``--quotas``, and replaces the
hours that it finds there.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from app.pipeline.ingest.names import partition_values
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, read_first
from app.pipeline.options import whole_number
from app.pipeline.publishing import publish
from app.pipeline.resolve.callbacks import callback_model, versions_of_callback
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.tasks import (
    LocalHours,
    buckets_of,
    count_decided,
    find_limits,
    limits_of,
)
from app.pipeline.resolve.versions import Versions, read_versions
from app.pipeline.results import Scope, explain, say_if_empty, say_plan
from app.pipeline.tables import DIM_BUCKET, QUOTA_VERSION, SERIES, SERIES_LIMIT

WRITES: Final = (SERIES_LIMIT, DIM_BUCKET)
BROADCAST_MAX: Final = 5_000_000
"""Versions of quotas that are still sent to every worker whole: 500 MB."""

_LATEST: Final = "latest"
_HISTORY: Final = "history"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the quotas are, and which of them count."""
    parser.add_argument("--quotas", metavar="DIR", help="the folder above quota_version")
    parser.add_argument(
        "--as-of",
        choices=(_LATEST, _HISTORY),
        default=_LATEST,
        help="today's quotas for all minutes, or those of each minute; default latest",
    )
    parser.add_argument(
        "--callback",
        metavar="FILE",
        help="what the brokers' client.quota.callback.class does, as QUOTAS_CALLBACK_FILE of the "
        "service: strimzi-static or groups",
    )
    parser.add_argument(
        "--broadcast-max",
        type=partial(whole_number, least=0),
        default=BROADCAST_MAX,
        metavar="ROWS",
        help=f"more versions of quotas are divided by user; default {BROADCAST_MAX}",
    )


def run(job: Job) -> None:
    """Write both tables for the hours of the input.

    Raises:
        UsageError: An option is missing, a folder lacks its table, versions of a quota overlap, or
            two buckets have the same hash; the file of --callback cannot be used.
        InfrastructureError: Spark fails.
    """
    scope = Scope.of(job)
    job.require_options(quotas=True)
    callback_model(job.options.callback)
    with job.spark():
        quotas = job.quotas()
        if job.options.dry_run:
            say_plan(job, WRITES)
            job.counts["would_read"].append(quotas.address(QUOTA_VERSION))
            return
        lakes, out = job.lakes(), job.lake()
        for lake in lakes:
            lake.require(SERIES)
        hours = scope.hours(lakes, SERIES)
        series, filled = read_series(lakes, hours)
        versions = read_versions(quotas, scope.cluster)
        write_limits(job, series, versions, out, Hours(hours, filled)).unpersist()
        say_if_empty(job)
    publish(job, hours)


class Hours(NamedTuple):
    """The hours that a run is about, and those of them that have series."""

    about: Sequence[Partition]
    filled: Sequence[Partition]


def read_series(
    lakes: Sequence[Lake], hours: Sequence[Partition]
) -> tuple[DataFrame | LocalHours, Sequence[Partition]]:
    """Return the series of hours, and those of these that have any."""
    here = LocalHours.of(lakes, SERIES, hours, SERIES.columns)
    if here is not None:
        return here, here.filled
    series = read_first(lakes, SERIES, hours)
    filled = partition_values(series.select(*SERIES.partitions).distinct())
    return series.repartition(*SERIES.partitions), filled


def write_limits(
    job: Job, series: DataFrame | LocalHours, versions: pa.Table, out: Lake, hours: Hours
) -> DataFrame:
    """Write both tables, count into the report, and return what was found, persisted.

    Args:
        job: Has the options of this job; gets the counts.
        series: The columns of ``SERIES``; a task has all of an hour.
        versions: ``quota_version``.
        out: Where to.
        hours: That the run is about.

    Returns:
        What ``find_limits`` does.

    Raises:
        UsageError: Versions of a quota overlap, or two buckets have the same id.
    """
    seen = {hour["cluster_id"] for hour in hours.filled}
    model = callback_model(job.options.callback)
    versions = versions_of_callback(versions, model, seen)
    chosen = Versions.in_history if job.options.as_of == _HISTORY else Versions.latest
    look_ups = LookUp.shares(chosen(versions), job.options.broadcast_max)
    found = find_limits(series, look_ups).persist()
    buckets = buckets_of(found)
    counted = count_decided(buckets)
    job.counts["rows_in"], job.counts["unlimited"] = counted.rows, counted.unlimited
    job.counts["rows_out"] = {}
    seen_buckets = buckets.where("first_seen is not null")
    for frame, table in ((limits_of(found), SERIES_LIMIT), (seen_buckets, DIM_BUCKET)):
        explain(job, table, frame)
        job.counts["rows_out"][table.name] = out.write(frame, table, hours.about, is_sorted=True)
    with_quotas = set(versions["cluster_id"].unique().to_pylist())
    job.with_quotas = sorted(with_quotas)
    job.without_quotas = sorted(seen - with_quotas)
    return found
