"""Publish results to Postgres, where the service serves them from: days, hours and incidents.

Of histograms those of all brokers together go there.

Minutes stay in the lake: they are too many beside a log that has to answer in a second.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv
from pyspark.sql import functions as sf

from app.pipeline.folders import retried
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition, days_of
from app.pipeline.results import Reach, broker_coverage, merge_buckets, reach_of
from app.pipeline.run_records import connect, database_of, record_published, record_run
from app.pipeline.tables import (
    BEGIN_OF_HOUR,
    BROKER_COMMIT,
    BUCKET_HOUR,
    BY_CLUSTER,
    BY_DAY,
    BY_HOUR,
    BY_RUN,
    DIM_BUCKET,
    DRIFT_FINDING,
    RECOMMENDATION,
    STALE_QUOTA,
    THROTTLE_INCIDENT,
    UNCOVERED_CLIENT,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
    WHATIF_ENTITY,
    WHATIF_RUN,
    WHATIF_TIMELINE,
    Table,
)
from app.pipeline.usage.days import histogram

SERVED: Final[Mapping[str, Sequence[Table]]] = {
    "resolve": (DIM_BUCKET,),
    "utilization": (DIM_BUCKET, UTILIZATION_DAILY, UTILIZATION_HIST, BUCKET_HOUR),
    "incidents": (DIM_BUCKET, THROTTLE_INCIDENT),
    "rightsize": (RECOMMENDATION,),
    "stale": (STALE_QUOTA, UNCOVERED_CLIENT),
    "overcommit": (BROKER_COMMIT,),
    "drift": (DRIFT_FINDING,),
    "whatif": (WHATIF_RUN, WHATIF_ENTITY, WHATIF_TIMELINE),
    "run": (DIM_BUCKET, UTILIZATION_DAILY, UTILIZATION_HIST, BUCKET_HOUR, THROTTLE_INCIDENT),
}
"""The tables with a twin in Postgres that a job writes."""

TWIN_COLUMNS: Final[Mapping[Table, Sequence[str]]] = {
    DIM_BUCKET: [name for name in DIM_BUCKET.columns if name not in {"dt", "hour"}],
    UTILIZATION_DAILY: [name for name in UTILIZATION_DAILY.columns if not name.startswith("hist")],
    BUCKET_HOUR: (
        *("cluster_id", "dt", "hour", "broker_id", "key", "bucket_id", "rate_avg", "rate_max"),
        *("limit", "throttle_ms_max", "minutes"),
    ),
    THROTTLE_INCIDENT: [name for name in THROTTLE_INCIDENT.columns if name != "dt"],
}
"""The columns of a twin, where it has others than the table."""

DETAILS_FOR_DAYS: Final = 14
"""So many days, up to a cluster's newest, have their hours and histograms served."""

MOST_RUNS: Final = 100
"""So many runs of what-if are served."""

_BATCH: Final = 10_000
_AS_CSV: Final = csv.WriteOptions(include_header=False, quoting_style="all_valid")
"""A text in quotes may be empty, without them it is null."""

_ONE_AT_A_TIME: Final = "select pg_advisory_xact_lock(hashtext('quota-pipeline publish'))"
_OF_DAYS: Final = sql.SQL(
    "delete from {table} using unnest(%(clusters)s::text[], %(days)s::date[]) as scope (c, d) "
    "where cluster_id = c and {day} = d"
)
_REPLACED: Final[Mapping[Sequence[str], sql.SQL]] = {
    BY_HOUR: _OF_DAYS,
    BY_DAY: _OF_DAYS,
    BY_CLUSTER: sql.SQL("delete from {table} where cluster_id = any(%(clusters)s)"),
    BY_RUN: sql.SQL(
        "delete from {table} where run_id = any(%(runs)s) or cluster_id = any(%(clusters)s) and "
        "run_id not in (select run_id from pipeline_run where 'whatif_run' = any(published) "
        "order by seq desc limit %(most)s)"
    ),
}
"""What removes the rows that are replaced, by the partitions of the table."""

_DAY: Final = {THROTTLE_INCIDENT: sql.SQL("(start at time zone 'UTC')::date")}
"""Of a row, where the twin has no ``dt``."""

_COPY: Final = sql.SQL("copy {table} ({columns}) from stdin (format csv)")
_MERGE: Final = """
    insert into dim_bucket as old
    select * from json_populate_recordset(null::dim_bucket, %s)
    on conflict (cluster_id, bucket_id, level, coalesce(quota_user, ''),
      coalesce(quota_user_default, false), coalesce(quota_client_id, ''),
      coalesce(quota_client_default, false))
    do update set first_seen = least(old.first_seen, excluded.first_seen),
      last_seen = greatest(old.last_seen, excluded.last_seen)
"""
_DROP_OLD: Final = sql.SQL(
    "delete from {table} using (select cluster_id as c, max(dt) - %s as d from {table} "
    "where cluster_id = any(%s) group by cluster_id) as old where cluster_id = c and dt <= d"
)


@contextmanager
def record_if_published(job: Job) -> Iterator[None]:
    """Record a run that publishes, and no other; a dry one looks for the address.

    Raises:
        UsageError: ``--pg`` names no database.
        InfrastructureError: Postgres cannot be reached.
    """
    publishes = job.name in SERVED and job.options.pg is not None
    if publishes:
        database_of(job)
    with record_run(job) if publishes and not job.options.dry_run else nullcontext():
        yield


def publish(job: Job, hours: Sequence[Partition], days: Sequence[Partition] | None = None) -> None:
    """Publish what a job wrote of some hours, where ``--pg`` asks for it; else do nothing.

    Args:
        job: ``counts["published"]`` gets the rows of each table.
        hours: Their days are published whole.
        days: Those days, where incidents of others were replaced, too.

    Raises:
        UsageError: ``--pg`` names no database.
        InfrastructureError: Postgres cannot be reached, was not migrated, or refuses.
    """
    if job.options.pg is not None:
        lake = job.lake()
        reach = retried(lambda: reach_of(broker_coverage(lake.read_in(BUCKET_HOUR, hours))))
        publish_advice(job, SERVED[job.name], days or days_of(hours), reach)


def publish_advice(
    job: Job, tables: Sequence[Table], about: Sequence[Partition], reach: Reach | None
) -> None:
    """Publish tables, such as advice about clusters or answers of what-if, likewise.

    Args:
        about: The clusters, with their days or runs, whose rows are replaced.
        reach: How far the data behind them reach; null: it was not asked for.
    """
    if job.options.pg is not None:
        lake = job.lake()

        def publish_rows() -> None:
            rows = {table: map(partial(_rows, lake, table), about) for table in tables}
            publish_results(job, rows, about, reach or Reach(None, None))

        retried(publish_rows)


def publish_results(
    job: Job, tables: Mapping[Table, Iterable[pa.Table]], about: Sequence[Partition], reach: Reach
) -> None:
    """Replace the rows of clusters, days or runs, and record the run, in one transaction.

    A run that is killed before leaves the former results. Incidents are replaced where they begin
    on one of the days; ``dim_bucket`` grows, since other days need its rows.

    Args:
        tables: The rows of each table, in batches, which are read once no other run publishes: so
            the last to publish has what all others have. A table without any ends empty.
    """
    clusters = sorted({item["cluster_id"] for item in about})
    with record_run(job), connect(database_of(job)) as connection:
        job.say("publishing to Postgres ...")
        with connection.transaction():
            connection.execute(_ONE_AT_A_TIME)
            counts = {
                table.name: _replace(connection, table, batches, about)
                for table, batches in tables.items()
            }
            for table in (BUCKET_HOUR, UTILIZATION_HIST):
                drop = _DROP_OLD.format(table=sql.Identifier(table.name))
                connection.execute(drop, [DETAILS_FOR_DAYS, clusters])
            record_published(connection, job, reach, counts, clusters)
    job.counts["published"] = {**job.counts.get("published", {}), **counts}


def _rows(lake: Lake, table: Table, partition: Partition) -> pa.Table:
    """Return the rows of a cluster, day or run as the table's twin has them."""
    rows = lake.read_in(UTILIZATION_DAILY if table is UTILIZATION_HIST else table, [partition])
    if "run_id" in partition:
        rows = rows.where(sf.col("run_id") == partition["run_id"])
    if table is UTILIZATION_HIST:
        rows = histogram(rows)
    elif table is DIM_BUCKET:
        rows = merge_buckets(rows)
    elif table is BUCKET_HOUR:
        rows = rows.withColumn("hour", sf.expr(BEGIN_OF_HOUR))
    return rows.select(*TWIN_COLUMNS.get(table, table.columns)).toArrow()


def _replace(
    connection: psycopg.Connection[Any],
    table: Table,
    batches: Iterable[pa.Table],
    about: Sequence[Partition],
) -> int:
    """Replace rows; return how many were written."""
    if table is not DIM_BUCKET:
        columns = {"clusters": "cluster_id", "days": "dt", "runs": "run_id"}
        scope = {name: [item.get(column) for item in about] for name, column in columns.items()}
        delete = _REPLACED[table.partitions].format(
            table=sql.Identifier(table.name), day=_DAY.get(table, sql.SQL("dt"))
        )
        connection.execute(delete, {**scope, "most": MOST_RUNS})
    rows = 0
    for batch in batches:
        for chunk in batch.to_batches(max_chunksize=_BATCH):
            _write(connection, table, chunk)
        rows += batch.num_rows
    return rows


def _write(connection: psycopg.Connection[Any], table: Table, chunk: pa.RecordBatch) -> None:
    rows = pa.table(list(map(_storable, chunk.columns)), chunk.schema)
    if table is DIM_BUCKET:
        connection.execute(_MERGE, [json.dumps(rows.to_pylist(), default=str)])
        return
    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink, _AS_CSV)
    columns = sql.SQL(", ").join(map(sql.Identifier, chunk.schema.names))
    statement = _COPY.format(table=sql.Identifier(table.name), columns=columns)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(sink.getvalue())


def _storable(column: pa.Array) -> pa.Array:
    """Replace U+0000, which Postgres has in no text."""
    is_text = pa.types.is_string(column.type)
    return pc.replace_substring(column, "\0", "\ufffd") if is_text else column
