"""Parquet into Postgres: by COPY into the unlogged twin of a table."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from psycopg import sql
from pyarrow import csv

from app.pipeline.arrow_storage import arrow_schema
from app.pipeline.publish.coverage import Place
from app.pipeline.tables import TABLES, Table

_BATCH: Final = 65_536
_AS_CSV: Final = csv.WriteOptions(include_header=False, quoting_style="all_valid")
"""A text in quotes may be empty, without them it is null."""


def staged(table: Table) -> sql.Identifier:
    """Return the name of the table that rows are copied into first."""
    return sql.Identifier(f"staged_{table.name}")


def columns_of(table: Table) -> list[str]:
    """Return the names of the columns, in order."""
    names: list[str] = arrow_schema(table).names
    return names


def clear_staging(connection: psycopg.Connection[Any], tables: Iterable[Table]) -> None:
    """Forget what runs staged that were killed before they could publish it."""
    for table in tables:
        connection.execute(
            sql.SQL(
                "delete from {} where run not in "
                "(select seq from pipeline_run where state = 'running')"
            ).format(staged(table))
        )


def stage(connection: psycopg.Connection[Any], seq: int, place: Place) -> int:
    """Copy the rows of a partition for a run; return how many."""
    table = TABLES[place.table]
    statement = sql.SQL("copy {} (run, {}) from stdin (format csv)").format(
        staged(table), sql.SQL(", ").join(map(sql.Identifier, columns_of(table)))
    )
    rows = 0
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in _batches(place, table, seq):
            sink = pa.BufferOutputStream()
            csv.write_csv(batch, sink, _AS_CSV)
            copy.write(sink.getvalue())
            rows += batch.num_rows
    return rows


def _batches(place: Place, table: Table, seq: int) -> Iterator[pa.Table]:
    schema = arrow_schema(table)
    named = {"cluster_id": place.cluster_id, "dt": place.day}
    for file in sorted(place.folder.glob("*.parquet")):
        with pq.ParquetFile(file) as opened:
            stored = [name for name in schema.names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(_BATCH, columns=stored):
                run = pa.repeat(pa.scalar(seq, pa.int64()), batch.num_rows)
                columns = [_column(batch, field, named) for field in schema]
                yield pa.table([run, *columns], ["run", *schema.names])


def _column(batch: pa.RecordBatch, field: pa.Field, named: dict[str, Any]) -> pa.Array:
    """Return a column; one that the file lacks is of the folder's name, or null."""
    if field.name not in batch.schema.names:
        return pa.repeat(pa.scalar(named.get(field.name), field.type), batch.num_rows)
    column = batch.column(field.name).cast(field.type)
    if pa.types.is_string(field.type):
        # Postgres keeps no U+0000 in a text.
        return pc.replace_substring(column, "\0", "\ufffd")
    return column
