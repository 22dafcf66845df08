"""The tables of advice, as they are written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from app.domain.entities import ClientQuotaEntity
from app.pipeline.job import Job
from app.pipeline.lake import Partition, schema_of
from app.pipeline.tables import Table


def quota_columns(entity: ClientQuotaEntity | None) -> dict[str, Any]:
    """Return the columns that name the entity of a quota; those of none are empty."""
    names = {} if entity is None else entity.as_dict()
    columns: dict[str, Any] = {}
    for kind, column in (("user", "quota_user"), ("client-id", "quota_client")):
        name = "quota_user" if kind == "user" else "quota_client_id"
        columns[name] = names.get(kind) or ""
        columns[f"{column}_default"] = kind in names and names[kind] is None
    return columns


def write_advice(job: Job, table: Table, rows: pa.Table, clusters: Sequence[Partition]) -> None:
    """Replace the advice about clusters, and count it into the report.

    Args:
        job: Writes it.
        table: Which.
        rows: As ``whole_table`` returns them.
        clusters: All whose rows are replaced.
    """
    written = job.lake().write(rows, table, clusters)
    job.counts.setdefault("rows_out", {})[table.name] = written


def rows_to_table(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as columns of a table; what is missing is null."""
    written = list(rows)
    return whole_table(table, {name: [row.get(name) for row in written] for name in table.columns})


def whole_table(table: Table, columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as a table has them.

    Args:
        table: Which.
        columns: By name; one value stands for all rows, and what is missing is null.
    """
    number = max((len(column) for column in columns.values()), default=0)
    if any(not len(column) for column in columns.values()):
        number = 0
    whole = {}
    for each in schema_of(table):
        kind = to_arrow_type(each.dataType)
        values = columns.get(each.name, [None])
        if len(values) != number:
            values = [values[0]] * number if len(values) else []
        if isinstance(values, pa.Array | pa.ChunkedArray):
            whole[each.name] = values.cast(kind)
        else:
            whole[each.name] = pa.array(values, kind)
    return pa.table(whole)
