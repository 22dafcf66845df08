"""Find the limit and the bucket of each observation: ``bucket_minute`` and ``dim_bucket``.

Reads ``observation_minute`` below each ``--input`` and ``quota_version`` below ``--quotas``, and
replaces the days that it finds there.
"""

import argparse
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folders import Partition, RunFolder, has_table, local_folder
from app.pipeline.job import Job
from app.pipeline.jobs.resolve import BROADCAST_MAX, resolve
from app.pipeline.jobs.resolve_buckets import (
    bucket_minutes,
    bucket_names,
    dim_buckets,
    from_one_source,
    refuse_collisions,
    with_earlier_buckets,
)
from app.pipeline.jobs.resolve_tables import Hashing, build_look_ups, forget_look_ups
from app.pipeline.jobs.resolve_versions import (
    gathered,
    latest_versions,
    versions_in_history,
)
from app.pipeline.sinks.postgres import publish
from app.pipeline.sinks.result_tables import explain, say_plan
from app.pipeline.sources.buckets import Scope, days_of
from app.pipeline.storage import read_table, require_table, schema_of, write_table
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
        type=_rows,
        default=BROADCAST_MAX,
        metavar="ROWS",
        help=f"look-ups with more rows are joined by partitions; default {BROADCAST_MAX}",
    )
    parser.add_argument(
        "--hash-seed", type=_seed, metavar="N", help="after two names had the same hash"
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
            observations = scope.minutes(read_table(session, folders, OBSERVATION_MINUTE))
            versions = scope.of_cluster(read_table(session, [quotas], QUOTA_VERSION))
            days = days_of(folders, OBSERVATION_MINUTE, scope)
            write_buckets(job, observations, versions, out, days)
            out.publish()
        finally:
            out.discard()
    publish(job, out)


def write_buckets(
    job: Job,
    observations: DataFrame,
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
    resolved = resolve(observations, look_ups, hashing, broadcast_max=job.options.broadcast_max)
    rows_in = observations.count()
    job.counts["rows_in"] = rows_in
    place = out.aside(BUCKET_MINUTE)
    place.mkdir(parents=True, exist_ok=True)
    one_source = from_one_source(observations)
    _count_minutes(job, bucket_minutes(resolved, rows_in, str(place), one_source=one_source))
    out.wrote(BUCKET_MINUTE, days)
    forget_look_ups(look_ups)
    kept.unpersist()
    _require_all_rows(job, rows_in)
    names = bucket_names(observations, hashing).cache()
    refuse_collisions(names)
    _write_names(job, names, out, days)
    names.unpersist()


def _count_minutes(job: Job, told: DataFrame) -> None:
    explain(job, BUCKET_MINUTE, told)
    tasks = told.collect()
    job.counts["rows_out"] = {"bucket_minute": sum(one.minutes for one in tasks)}
    job.counts["rows_resolved"] = sum(one.rows for one in tasks)
    job.counts["rows_unlimited"] = sum(one.unlimited for one in tasks)


def _require_all_rows(job: Job, rows_in: int) -> None:
    resolved = job.counts["rows_resolved"]
    if resolved != rows_in:
        message = (
            f"{rows_in} observations came in and {resolved} were resolved; nothing is published. "
            "Run again; where it stays so, the input changes while it is read."
        )
        raise InfrastructureError(message)


def _write_names(job: Job, names: DataFrame, out: RunFolder, days: Sequence[Partition]) -> None:
    session = names.sparkSession
    written = session.read.schema(schema_of(BUCKET_MINUTE)).parquet(str(out.aside(BUCKET_MINUTE)))
    buckets = dim_buckets(written, names)
    if has_table(out.folder, DIM_BUCKET):
        earlier = read_table(session, [out.folder], DIM_BUCKET)
        buckets = with_earlier_buckets(buckets, earlier, days)
    counted = Observation("dim_bucket")
    watched = buckets.observe(counted, sf.count(sf.lit(1)).alias("n"))
    write_table(watched.coalesce(1), DIM_BUCKET, out)
    job.counts["rows_out"]["dim_bucket"] = counted.get["n"]


def _rows(text: str) -> int:
    return _whole(text, 0)


def _seed(text: str) -> int:
    return _whole(text, -(2**63))


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number < 2**63:
        message = f"{text!r} is not a whole number from {least} to {2**63 - 1}"
        raise argparse.ArgumentTypeError(message)
    return number
