"""Write minutes of names, minutes of buckets beside limits, or histograms, for other tools.

``--table observation_minute`` are the minutes of series, ``bucket_minute`` those of buckets beside
their limits, ``utilization_hist`` the histogram of each bucket's day. They follow from the tables
below ``--input``, and are written to ``--out`` by cluster and day.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.errors import UsageError
from app.pipeline.folders import retried
from app.pipeline.job import Job
from app.pipeline.lake import Lake, read_first
from app.pipeline.results import Scope, explain
from app.pipeline.tables import (
    BUCKET_MINUTE,
    OBSERVATION_MINUTE,
    RATE_MINUTE,
    SERIES,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
    Table,
)
from app.pipeline.usage.buckets import facts_of, minutes_of_buckets
from app.pipeline.usage.days import histogram
from app.pipeline.usage.measures import BYTE_KEYS

_CSV: Final = "csv"
_FORMATS: Final = ("parquet", _CSV)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which table."""
    names = [table.name for table in _TABLES]
    parser.add_argument("--table", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.epilog = "--format is parquet, the default, or csv, with a header."


def run(job: Job) -> None:
    """Write the table for the period.

    Raises:
        UsageError: An option is missing or wrong, or an input lacks a table.
    """
    table = next((item for item in _TABLES if item.name == job.options.table), None)
    if table is None:
        message = f"--table is missing: it is one of {', '.join(item.name for item in _TABLES)}."
        raise UsageError(message)
    if job.options.format not in {None, *_FORMATS}:
        message = f"--format {job.options.format} is unknown: it is one of {', '.join(_FORMATS)}."
        raise UsageError(message)
    if job.options.dry_run:
        job.say_plan((table,))
        return
    job.counts["rows_out"] = {table.name: retried(lambda: _export(job, table))}


def _export(job: Job, table: Table) -> int:
    rows = _TABLES[table](job.lakes(), Scope.of(job)).repartition(*table.partitions)
    explain(job, table, rows)
    out = job.lake()
    if job.options.format != _CSV:
        return out.write(rows, table)
    by = (*table.partitions, *table.order)
    ordered = rows.select(*table.columns).sortWithinPartitions(*by).persist()
    try:
        writer = ordered.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer = writer.partitionBy(*table.partitions).options(header="true", escape='"')
        writer.csv(out.address(table))
        return ordered.count()
    finally:
        ordered.unpersist()


def observation_minutes(lakes: Sequence[Lake], scope: Scope) -> DataFrame:
    """Return ``OBSERVATION_MINUTE``: the minutes of series with their names."""
    for lake in lakes:
        lake.require(RATE_MINUTE)
    hours = scope.hours(lakes, RATE_MINUTE)
    names = read_first(lakes, SERIES, hours).drop("first_seen", "last_seen")
    minutes = read_first(lakes, RATE_MINUTE, hours).join(names, [*SERIES.partitions, "series_id"])
    micros = "cast(rint(rate_avg * 1000000) as bigint)"
    per_minute = f"{micros} div 1000000 * 60 + ({micros} % 1000000 * 60 + 500000) div 1000000"
    of_bytes = sf.when(sf.col("key").isin(BYTE_KEYS), sf.expr(per_minute))
    return minutes.withColumn("bytes_est", of_bytes).select(*OBSERVATION_MINUTE.columns)


def _histograms(lakes: Sequence[Lake], scope: Scope) -> DataFrame:
    for lake in lakes:
        lake.require(UTILIZATION_DAILY)
    return histogram(scope.of_days(read_first(lakes, UTILIZATION_DAILY, [{}])))


_TABLES: Final[Mapping[Table, Callable[[Sequence[Lake], Scope], DataFrame]]] = {
    OBSERVATION_MINUTE: observation_minutes,
    BUCKET_MINUTE: lambda lakes, scope: minutes_of_buckets(lakes, facts_of(lakes, scope)).rows(
        BUCKET_MINUTE.ddl
    ),
    UTILIZATION_HIST: _histograms,
}
"""What each follows from."""
