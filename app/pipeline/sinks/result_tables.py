"""How the jobs after ``resolve`` write: a file per day or cluster, whatever Spark's partitions."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout

from pyspark.sql import DataFrame

from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition
from app.pipeline.sources.buckets import Scope, read_buckets
from app.pipeline.tables import DIM_BUCKET, Table


def write_result(
    job: Job, frame: DataFrame, table: Table, out: Lake, replaces: Iterable[Partition] = ()
) -> None:
    """Write a table, one file for each of its partitions.

    Args:
        job: Gets the count of rows for its report; ``--explain`` prints the plan.
        frame: Has the columns of the table.
        table: Its layout.
        out: Where to.
        replaces: Partitions that this run is about: without rows they are empty afterwards.
    """
    spread = frame.repartition(*table.partitions)
    explain(job, table, spread)
    job.counts.setdefault("rows_out", {})[table.name] = out.write(spread, table, replaces)


def explain(job: Job, table: Table, frame: DataFrame) -> None:
    """Print the plan of what is written on the standard error, for ``--explain``."""
    if job.options.explain:
        with redirect_stdout(sys.stderr):
            print(f"-- {table.name}")
            frame.explain("formatted")


def carry_names(job: Job, lakes: Sequence[Lake], out: Lake, scope: Scope) -> DataFrame | None:
    """Merge the ``dim_bucket`` of the input into that of ``--out``, and return the rows.

    Later jobs and readers name entities by it. Null where neither lake has one.
    """
    if out.name in {lake.name for lake in lakes} or not any(lake.has(DIM_BUCKET) for lake in lakes):
        return read_buckets(lakes, scope)
    merged = read_buckets([*lakes, out], scope)
    if merged is not None:
        write_result(job, merged, DIM_BUCKET, out)
    return read_buckets([out], scope)


def say_plan(job: Job, *, reads: Sequence[Table], writes: Sequence[Table]) -> None:
    """Say what the job would read and write, for ``--dry-run``.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has none of the tables.
    """
    tables = [(lake, table) for lake in job.lakes() for table in reads]
    job.counts["would_read"] = [lake.address(table) for lake, table in tables if lake.has(table)]
    job.counts["would_write"] = [job.lake().address(table) for table in writes]
