"""How the jobs after ``resolve`` write: a file per day or cluster, whatever Spark's partitions."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.folders import Partition, RunFolder, has_table
from app.pipeline.job import Job
from app.pipeline.sources.buckets import Scope, read_buckets
from app.pipeline.storage import write_table
from app.pipeline.tables import DIM_BUCKET, Table


def write_result(
    job: Job, frame: DataFrame, table: Table, run: RunFolder, replaces: Iterable[Partition] = ()
) -> int:
    """Stage a table, one file for each of its partitions, and return how many rows it has.

    Args:
        job: Gets the count for its report; ``--explain`` prints the plan.
        frame: Has the columns of the table.
        table: Its layout.
        run: Where to.
        replaces: Partitions that this run is about: without rows they are empty afterwards.
    """
    spread = frame.repartition(*table.partitions)
    explain(job, table, spread)
    write_table(spread, table, run, replaces=replaces)
    files = run.aside(table).rglob("*.parquet")
    rows: int = sum(pq.read_metadata(file).num_rows for file in files)
    job.counts.setdefault("rows_out", {})[table.name] = rows
    return rows


def explain(job: Job, table: Table, frame: DataFrame) -> None:
    """Print the plan of what is written on the standard error, for ``--explain``."""
    if job.options.explain:
        with redirect_stdout(sys.stderr):
            print(f"-- {table.name}")
            frame.explain("formatted")


def carry_names(job: Job, session: SparkSession, run: RunFolder, scope: Scope) -> DataFrame | None:
    """Merge the ``dim_bucket`` of the input into that of ``--out``, and return the rows.

    Later jobs and readers name entities by it. Null where neither folder has one.
    """
    folders = job.inputs()
    if run.folder not in folders and any(has_table(folder, DIM_BUCKET) for folder in folders):
        folders = [*folders, run.folder]
        names = read_buckets(session, folders, scope)
        if names is not None:
            write_result(job, names, DIM_BUCKET, run)
        return names
    return read_buckets(session, folders, scope)


def say_plan(job: Job, *, reads: Sequence[Table], writes: Sequence[Table]) -> None:
    """Say what the job would read and write, for ``--dry-run``.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has none of the tables.
    """
    folders = job.inputs()
    addresses = [
        str(folder / table.name)
        for folder in folders
        for table in reads
        if has_table(folder, table)
    ]
    job.counts["would_read"] = addresses
    job.counts["would_write"] = [f"{job.options.out}/{table.name}" for table in writes]
