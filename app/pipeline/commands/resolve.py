"""Find what limits each series in each hour: ``series_limit`` and ``dim_bucket``.

Reads ``series`` below each ``--input`` and ``quota_version`` below ``--quotas``, and replaces the
hours that it finds there.
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from app.pipeline.by_partition import Columns, Reading, Share, by_partition, of_all_rows
from app.pipeline.errors import UsageError
from app.pipeline.hashes import hash_texts
from app.pipeline.job import Job, without_quotas
from app.pipeline.lake import Lake, arrow_schema
from app.pipeline.options import number_option
from app.pipeline.partitions import Partition
from app.pipeline.publishing import publish
from app.pipeline.resolve.callbacks import callback_model, versions_of_callback
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.series import (
    DECIDED_DDL,
    OF_SERIES,
    REPORTS,
    decide,
    doubled_id,
    limits_and_buckets,
)
from app.pipeline.resolve.versions import Versions, read_versions
from app.pipeline.results import Scope, explain, say_if_empty
from app.pipeline.tables import BY_HOUR, DIM_BUCKET, SERIES, SERIES_LIMIT
from app.pipeline.task_tables import TaskTables

WRITES: Final = (SERIES_LIMIT, DIM_BUCKET)
BROADCAST_MAX: Final = 5_000_000
"""Versions of quotas that are still sent to every worker whole: 500 MB."""

BYTES: Final = 10_000_000
"""Files of series with so many bytes have about 400,000 rows."""

_READING: Final = Reading(
    [Columns(SERIES, (*OF_SERIES, "user", "client_id"))], BYTES, together=True
)
_TAGS: Final = ("cluster_id", "key", "bucket_user", "bucket_client")
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
        type=number_option(0, kind=int),
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
    callback_model(job.options.callback)
    quotas = job.quotas()
    if job.options.dry_run:
        job.say_plan(WRITES)
        return
    lakes, out = job.lakes(), job.lake()
    for lake in lakes:
        lake.require(SERIES)
    hours = scope.hours(lakes, SERIES)
    write_limits(job, lakes, hours, read_versions(quotas, scope.cluster), out)
    say_if_empty(job)
    publish(job, hours)


def write_limits(
    job: Job, lakes: Sequence[Lake], hours: Sequence[Partition], versions: pa.Table, out: Lake
) -> None:
    """Write both tables, and count into the report.

    Raises:
        UsageError: Versions of a quota overlap, or two buckets have the same id.
    """
    model = callback_model(job.options.callback)
    versions = versions_of_callback(versions, model, {hour["cluster_id"] for hour in hours})
    chosen = Versions.in_history if job.options.as_of == _HISTORY else Versions.latest
    look_ups = LookUp.shares(chosen(versions), job.options.broadcast_max)
    with ExitStack() as opened:
        made = TaskTables(out, WRITES, REPORTS, opened)
        found = _find_limits(lakes, hours, look_ups, made)
        explain(job, SERIES_LIMIT, found)
        made.run(found)
        require_own_ids(made.reports["ids"], partial(_decided, lakes, hours, look_ups))
        decided = made.reports["decided"]
        for name, column in (("rows_in", "rows"), ("unlimited", "unlimited")):
            job.counts[name] = pc.sum(decided[column]).as_py() or 0
        job.counts["rows_out"] = {table.name: made.put(table, hours) for table in WRITES}
    observed, limited = (rows["cluster_id"].unique().to_pylist() for rows in (decided, versions))
    job.unlimited = without_quotas(observed, limited)


def _find_limits(
    lakes: Sequence[Lake], hours: Sequence[Partition], look_ups: Sequence[LookUp], made: TaskTables
) -> DataFrame:
    """Return what tasks make of the series of hours, by the packing of ``made``."""
    packing = made.packing

    def pack(decided: pa.Table) -> pa.Table:
        tables = limits_and_buckets(decided).items()
        return pa.Table.from_batches(packing.pack(tables), packing.schema)

    if len(look_ups) > 1:
        decided = _decided(lakes, hours, look_ups).repartition(*BY_HOUR)
        return decided.mapInArrow(of_all_rows(pack), made.ddl)
    (look_up,) = look_ups
    found = by_partition(lakes, _READING, hours, lambda _, series: pack(decide(series, look_up)))
    return found.rows(made.ddl)


def _decided(
    lakes: Sequence[Lake], hours: Sequence[Partition], look_ups: Sequence[LookUp]
) -> DataFrame:
    """Return ``DECIDED_DDL`` of the series of hours; each look-up is of a share of the users."""
    number, schema = len(look_ups), arrow_schema(DECIDED_DDL)

    def deciding(share: int, look_up: LookUp) -> Callable[[Share, pa.Table], pa.Table]:
        def make(_: Share, series: pa.Table) -> pa.Table:
            own = hash_texts(series["user"].combine_chunks()) % number == share
            return decide(series.filter(pa.array(own)), look_up).cast(schema)

        return make

    shares = (
        by_partition(lakes, _READING, hours, deciding(*each)).rows(DECIDED_DDL)
        for each in enumerate(look_ups)
    )
    return reduce(DataFrame.unionByName, shares)


def require_own_ids(ids: pa.Table, decided: Callable[[], DataFrame]) -> None:
    """Make sure that no two buckets have the same id.

    ``ids`` are as ``REPORTS`` says, of all tasks; ``decided`` has the names of the two.

    Raises:
        UsageError: Two have.
    """
    doubled = doubled_id(ids)
    if doubled is None:
        return
    both = decided().where(f"bucket_id = {doubled}").select(*_TAGS).distinct().sort(*_TAGS)
    message = (
        f"{' and '.join(str(tuple(row)) for row in both.collect())} have the same bucket_id, a "
        "hash: leave one of them out of the input."
    )
    raise UsageError(message)
