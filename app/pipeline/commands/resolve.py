"""Find what limits each series in each hour: ``series_limit`` and ``dim_bucket``.

Reads ``series`` below each ``--input`` and ``quota_version`` below ``--quotas``, and replaces the
hours that it finds there.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from app.pipeline.ingest.names import partition_values
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, read_first
from app.pipeline.options import whole_number
from app.pipeline.publishing import publish
from app.pipeline.resolve.callbacks import callback_model, versions_of_callback
from app.pipeline.resolve.limits import build_look_up
from app.pipeline.resolve.series import buckets_of, count_decided, decide, limits_of
from app.pipeline.resolve.versions import count_versions, latest_versions, versions_in_history
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
        help=f"more versions of quotas are joined by partitions; default {BROADCAST_MAX}",
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
        series = read_first(lakes, SERIES, hours).repartition(*SERIES.partitions)
        versions = scope.of_cluster(quotas.read(QUOTA_VERSION))
        filled = partition_values(series.select(*SERIES.partitions).distinct())
        write_limits(job, series, versions, out, Hours(hours, filled)).unpersist()
        say_if_empty(job)
    publish(job, hours)


class Hours(NamedTuple):
    """The hours that a run is about, and those of them that have series."""

    about: Sequence[Partition]
    filled: Sequence[Partition]


def write_limits(
    job: Job, series: DataFrame, versions: DataFrame, out: Lake, hours: Hours
) -> DataFrame:
    """Write both tables, count into the report, and return what was decided, persisted.

    Args:
        job: Has the options of this job; gets the counts.
        series: The columns of ``SERIES``; a task has all of an hour.
        versions: ``quota_version``.
        out: Where to.
        hours: That the run is about.

    Raises:
        UsageError: Versions of a quota overlap, or two buckets have the same id.
    """
    model = callback_model(job.options.callback)
    versions = versions_of_callback(versions, model, {hour["cluster_id"] for hour in hours.filled})
    by_time = job.options.as_of == _HISTORY
    values = (versions_in_history if by_time else latest_versions)(versions).persist()
    of_cluster = count_versions(values)
    broadcast = sum(of_cluster.values()) <= job.options.broadcast_max
    # What is broadcast is collected anyway: one task makes it without a shuffle.
    look_up = build_look_up(values.coalesce(1) if broadcast else values, by_time=by_time).persist()
    decided = decide(series, look_up, by_time=by_time, broadcast=broadcast)
    if by_time:
        decided = decided.repartition(*SERIES.partitions)
    decided = decided.persist()
    counted = count_decided(decided)
    job.counts["rows_in"], job.counts["unlimited"] = counted.rows, counted.unlimited
    job.counts["rows_out"] = {}
    for frame, table in ((limits_of(decided), SERIES_LIMIT), (buckets_of(decided), DIM_BUCKET)):
        explain(job, table, frame)
        job.counts["rows_out"][table.name] = out.write(
            frame, table, hours.about, filled=hours.filled
        )
    for frame in (values, look_up):
        frame.unpersist()
    with_quotas, seen = set(of_cluster), {hour["cluster_id"] for hour in hours.filled}
    if seen - with_quotas:
        # One whose quotas all ended has some.
        ended = versions.select("cluster_id").distinct().collect()
        with_quotas |= {row.cluster_id for row in ended}
    job.with_quotas = sorted(with_quotas)
    job.without_quotas = sorted(seen - with_quotas)
    return decided
