"""Find the limit and the bucket of each observation: ``bucket_minute`` and ``dim_bucket``.

Reads ``observation_minute`` below each ``--input`` and ``quota_version`` below ``--quotas``, and
replaces the days that it finds there.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.exchange import Shares
from app.pipeline.folders import Partition, RunFolder, has_table, local_folder
from app.pipeline.job import Job
from app.pipeline.jobs.resolve import BROADCAST_MAX, resolve
from app.pipeline.jobs.resolve_buckets import (
    bucket_minutes,
    dim_buckets,
    from_one_source,
    refuse_collisions,
    with_earlier_buckets,
)
from app.pipeline.jobs.resolve_levels import NO_LEVEL
from app.pipeline.jobs.resolve_members import Members
from app.pipeline.jobs.resolve_names import Observations, moments_of, observed_names
from app.pipeline.jobs.resolve_tables import Hashing, build_look_ups, forget_look_ups
from app.pipeline.jobs.resolve_versions import (
    gathered,
    latest_versions,
    versions_in_history,
)
from app.pipeline.options import whole_number
from app.pipeline.publish.postgres import publish
from app.pipeline.sinks.result_tables import explain, say_plan
from app.pipeline.sources.buckets import Scope, days_of
from app.pipeline.sources.table_pieces import pieces_of, rows_by_day
from app.pipeline.storage import read_table, require_table, write_table
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, OBSERVATION_MINUTE, QUOTA_VERSION

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
    add_join_options(parser)


def add_join_options(parser: argparse.ArgumentParser) -> None:
    """Add what tunes the look-ups."""
    parser.add_argument(
        "--broadcast-max",
        type=partial(whole_number, least=0),
        default=BROADCAST_MAX,
        metavar="ROWS",
        help=f"look-ups with more rows are joined by partitions; default {BROADCAST_MAX}",
    )
    parser.add_argument(
        "--hash-seed",
        type=partial(whole_number, least=-(2**63)),
        metavar="N",
        help="after two names had the same hash",
    )


def run(job: Job) -> None:
    """Write both tables for the days of the input.

    Raises:
        UsageError: An option is missing, a folder lacks its table, versions of a quota overlap, or
            two names have the same hash.
        InfrastructureError: Spark lost or doubled rows.
    """
    folders, scope = job.inputs(), Scope.of(job)
    if not job.options.quotas:
        message = "--quotas is missing: name the folder that snapshot, history or synth wrote."
        raise UsageError(message)
    quotas = local_folder(job.options.quotas)
    if job.options.dry_run:
        say_plan(job, reads=(OBSERVATION_MINUTE,), writes=(BUCKET_MINUTE, DIM_BUCKET))
        job.counts["would_read"].append(str(quotas / QUOTA_VERSION.name))
        return
    require_table(folders, OBSERVATION_MINUTE)
    require_table([quotas], QUOTA_VERSION)
    out = job.output()
    with job.spark() as session:
        try:
            observations = Observations(pieces_of(folders, OBSERVATION_MINUTE, scope), scope)
            versions = scope.of_cluster(read_table(session, [quotas], QUOTA_VERSION))
            days = days_of(folders, OBSERVATION_MINUTE, scope)
            write_buckets(job, observations, versions, out, days)
            out.publish()
        finally:
            out.discard()
    publish(job, out)


def write_buckets(
    job: Job,
    observations: Observations,
    versions: DataFrame,
    out: RunFolder,
    days: Sequence[Partition],
) -> None:
    """Write both tables aside, and count into the report.

    Args:
        job: Has the options of this job; gets the counts.
        observations: ``observation_minute``.
        versions: ``quota_version``.
        out: Where to.
        days: The partitions that the run is about.

    Raises:
        UsageError: Versions of a quota overlap, or two names have the same hash.
        InfrastructureError: Spark lost or doubled rows.
    """
    hashing, history = Hashing(job.options.hash_seed), job.options.as_of == _HISTORY
    kept = (versions_in_history if history else latest_versions)(versions).cache()
    look_ups = build_look_ups(gathered(kept), hashing, history=history)
    moments = moments_of(look_ups)
    names = observed_names(versions.sparkSession, observations, moments)
    resolved = resolve(names, look_ups, hashing, broadcast_max=job.options.broadcast_max).cache()
    buckets = dim_buckets(resolved).cache()
    _count_rows(job, observations, buckets)
    with_quotas = {row.cluster_id for row in versions.select("cluster_id").distinct().collect()}
    job.without_quotas = sorted({piece.cluster for piece in observations.pieces} - with_quotas)
    refuse_collisions(buckets)
    members = Members(
        observations,
        np.array(moments, np.int64),
        Shares.of(rows_by_day(observations.pieces)),
        from_one_source(observations.pieces),
    )
    place = out.aside(BUCKET_MINUTE)
    place.mkdir(parents=True, exist_ok=True)
    _count_minutes(job, bucket_minutes(resolved, members, str(place)))
    out.wrote(BUCKET_MINUTE, days)
    _write_names(job, buckets, out, days)
    forget_look_ups(look_ups)
    for frame in (kept, resolved, buckets):
        frame.unpersist()


def _count_rows(job: Job, observations: Observations, buckets: DataFrame) -> None:
    """Count what was read and what was resolved.

    Raises:
        InfrastructureError: Spark lost or doubled names.
    """
    unlimited = sf.sum(sf.when(sf.col("level") == NO_LEVEL, sf.col("rows")))
    rows, free = buckets.agg(sf.sum("rows"), unlimited).collect()[0]
    job.counts["rows_resolved"], job.counts["rows_unlimited"] = rows or 0, free or 0
    job.counts["rows_in"] = job.counts["rows_resolved"]
    if observations.scope.since is None and observations.scope.until is None:
        job.counts["rows_in"] = sum(piece.rows for piece in observations.pieces)
    _require_all_rows(job, job.counts["rows_resolved"])


def _count_minutes(job: Job, told: DataFrame) -> None:
    explain(job, BUCKET_MINUTE, told)
    tasks = told.collect()
    job.counts["rows_out"] = {"bucket_minute": sum(task.minutes for task in tasks)}
    _require_all_rows(job, sum(task.rows for task in tasks))


def _require_all_rows(job: Job, resolved: int) -> None:
    rows_in = job.counts["rows_in"]
    if resolved != rows_in:
        message = (
            f"{rows_in} observations came in and {resolved} were resolved; nothing is published. "
            "Run again; where it stays so, the input changes while it is read."
        )
        raise InfrastructureError(message)


def _write_names(job: Job, buckets: DataFrame, out: RunFolder, days: Sequence[Partition]) -> None:
    if has_table(out.folder, DIM_BUCKET):
        earlier = read_table(buckets.sparkSession, [out.folder], DIM_BUCKET)
        buckets = with_earlier_buckets(buckets, earlier, days)
    counted = Observation("dim_bucket")
    watched = buckets.observe(counted, sf.count(sf.lit(1)).alias("n"))
    write_table(watched.coalesce(1), DIM_BUCKET, out)
    job.counts["rows_out"]["dim_bucket"] = counted.get["n"]
