"""What jobs of advice share: they read the newest days, then write and publish their tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from app.domain.entities import ClientQuotaEntity
from app.pipeline.advice.evidence import Evidence
from app.pipeline.by_partition import Columns
from app.pipeline.job import READS, Job
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition
from app.pipeline.publishing import SERVED, publish_advice
from app.pipeline.quota_history import entity_columns
from app.pipeline.results import Scope
from app.pipeline.tables import Table


def advise(job: Job, write: Callable[[Evidence], None]) -> None:
    """Write and publish what a job says of the newest days of its input.

    Args:
        job: Its first table has an hour wherever there are data.
        write: Writes its tables, and counts into the report.

    Raises:
        UsageError: An input lacks a table.
    """
    lakes = lakes_of(job)
    if lakes is None:
        return
    evidence = Evidence.of(lakes, Scope.of(job), job.options.days, READS[job.name][0])
    if not evidence.hours:
        job.say("the input has no hours of this cluster and period.")
    write(evidence)
    reach = evidence.reach() if job.options.pg is not None else None
    publish_advice(job, SERVED[job.name], evidence.clusters, reach)


def lakes_of(job: Job) -> list[Lake] | None:
    """Return the inputs, all of which have what the job reads; null where it is to say a plan.

    Raises:
        UsageError: An input lacks a table.
    """
    if job.options.dry_run:
        job.say_plan(SERVED[job.name])
        return None
    lakes = job.lakes()
    for lake in lakes:
        for table in READS[job.name]:
            lake.require(table)
    return lakes


def write_advice(job: Job, table: Table, rows: pa.Table, clusters: Sequence[Partition]) -> None:
    """Replace the advice about clusters, and count it into the report."""
    written = job.lake().write(rows, table, clusters)
    job.counts.setdefault("rows_out", {})[table.name] = written


def rows_to_table(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as columns of a table; what is missing is null."""
    return pa.Table.from_pylist([*rows], Columns(table, table.columns).schema)


def whole_table(table: Table, rows: pa.Table, **same: Any) -> pa.Table:
    """Return rows as a table has them: a column of a name, else a value of all rows, else null."""
    columns = {
        field.name: rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.repeat(pa.scalar(same.get(field.name), field.type), len(rows))
        for field in Columns(table, table.columns).schema
    }
    return pa.table(columns)


def quota_columns(entity: ClientQuotaEntity | None) -> dict[str, Any]:
    """Return the columns that name the entity of a quota; those of none are empty."""
    columns = entity_columns(entity or ClientQuotaEntity.of({}))
    return {f"quota_{name}": value for name, value in columns.items()}
