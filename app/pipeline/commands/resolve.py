"""Find the limit and the bucket of each observation: ``bucket_minute`` and ``dim_bucket``.

Reads ``observation_minute`` below each ``--input`` and ``quota_version`` below ``--quotas``, and
replaces the days that it finds there.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from app.pipeline.errors import InfrastructureError
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, read_all, read_first
from app.pipeline.options import whole_number
from app.pipeline.publishing import publish
from app.pipeline.resolve.buckets import (
    count_resolved,
    group_names,
    name_buckets,
    sum_minutes,
    with_earlier_buckets,
)
from app.pipeline.resolve.limits import build_look_up, resolve
from app.pipeline.resolve.versions import count_versions, latest_versions, versions_in_history
from app.pipeline.results import Scope, days_of, explain, say_if_empty, say_plan
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, OBSERVATION_MINUTE, QUOTA_VERSION

BROADCAST_MAX: Final = 5_000_000
"""Versions of quotas, about 500 MB, that are still sent to every worker whole."""

ROWS_OF_FILE: Final = 1_500_000
"""About so many observations are summed up for one file."""

_OF_MINUTE: Final = ("broker_id", "key", "user", "client_id", "ts")
"""What is one minute, whatever its source and grain: of inputs that overlap the first counts."""

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
        "--broadcast-max",
        type=partial(whole_number, least=0),
        default=BROADCAST_MAX,
        metavar="ROWS",
        help=f"more versions of quotas are joined by partitions; default {BROADCAST_MAX}",
    )


def run(job: Job) -> None:
    """Write both tables for the days of the input.

    Raises:
        UsageError: An option is missing, a folder lacks its table, versions of a quota overlap, or
            two names have the same hash.
        InfrastructureError: Spark lost or doubled rows.
    """
    scope = Scope.of(job)
    job.require_options(quotas=True)
    with job.spark():
        quotas = job.quotas()
        if job.options.dry_run:
            say_plan(job, (BUCKET_MINUTE, DIM_BUCKET))
            job.counts["would_read"].append(quotas.address(QUOTA_VERSION))
            return
        lakes, out = job.lakes(), job.lake()
        observations = scope.minutes(read_first(lakes, OBSERVATION_MINUTE, _OF_MINUTE))
        versions = scope.of_cluster(quotas.read(QUOTA_VERSION))
        days = days_of(lakes, OBSERVATION_MINUTE, scope)
        write_buckets(job, observations, versions, out, days)
        say_if_empty(job)
        if len(lakes) > 1:
            rows = scope.minutes(read_all(lakes, OBSERVATION_MINUTE)).count()
            job.counts["duplicates"] = rows - job.counts["rows_in"]
    publish(job, scope.minutes(out.read(BUCKET_MINUTE)), days)


def write_buckets(
    job: Job, observations: DataFrame, versions: DataFrame, out: Lake, days: Sequence[Partition]
) -> None:
    """Write both tables, and count into the report.

    Args:
        job: Has the options of this job; gets the counts.
        observations: ``observation_minute``.
        versions: ``quota_version``.
        out: Where to.
        days: The partitions that the run is about.

    Raises:
        UsageError: Versions of a quota overlap, or two buckets have the same id.
        InfrastructureError: Spark lost or doubled rows.
    """
    history = job.options.as_of == _HISTORY
    values = (versions_in_history if history else latest_versions)(versions).persist()
    broadcast = count_versions(values) <= job.options.broadcast_max
    # What is broadcast is collected anyway: one task makes it without a shuffle.
    look_up = build_look_up(values.coalesce(1) if broadcast else values).persist()
    names = group_names(observations, by_minute=history)
    buckets = name_buckets(resolve(names, look_up, broadcast=broadcast)).persist()
    by_day = observations.groupBy("cluster_id", "dt").count().collect()
    found = count_resolved(buckets)
    job.counts["rows_in"] = sum(row["count"] for row in by_day)
    job.counts["rows_resolved"], job.counts["rows_unlimited"] = found.rows, found.unlimited
    _require_all_rows(job, found.rows)
    most = max((row["count"] for row in by_day), default=1)
    shares = -(-most // ROWS_OF_FILE)
    resolved = resolve(observations, look_up, broadcast=broadcast)
    minutes = sum_minutes(resolved, one_source=found.one_source, shares=shares)
    _write_minutes(job, minutes, out, days)
    _write_names(job, buckets, out, days)
    for frame in (values, look_up, buckets):
        frame.unpersist()
    with_quotas = {row.cluster_id for row in versions.select("cluster_id").distinct().collect()}
    job.with_quotas = sorted(with_quotas)
    job.without_quotas = sorted({row.cluster_id for row in by_day} - with_quotas)


def _write_minutes(job: Job, minutes: DataFrame, out: Lake, days: Sequence[Partition]) -> None:
    explain(job, BUCKET_MINUTE, minutes)
    counted = Observation(BUCKET_MINUTE.name)
    watched = minutes.observe(counted, sf.sum("rows").alias("rows"))
    job.counts["rows_out"] = {BUCKET_MINUTE.name: out.write(watched, BUCKET_MINUTE, days)}
    _require_all_rows(job, counted.get["rows"] or 0)


def _require_all_rows(job: Job, resolved: int) -> None:
    rows_in = job.counts["rows_in"]
    if resolved != rows_in:
        message = (
            f"{rows_in} observations came in and {resolved} were resolved. "
            "Run again; where it stays so, the input changes while it is read."
        )
        raise InfrastructureError(message)


def _write_names(job: Job, buckets: DataFrame, out: Lake, days: Sequence[Partition]) -> None:
    if out.has(DIM_BUCKET):
        buckets = with_earlier_buckets(buckets, out.read(DIM_BUCKET), days)
    job.counts["rows_out"][DIM_BUCKET.name] = out.write(buckets.coalesce(1), DIM_BUCKET)
