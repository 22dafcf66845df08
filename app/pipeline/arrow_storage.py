"""Tables as they are written without Spark: small ones, by commands that need no JVM."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.folders import RunFolder, has_table
from app.pipeline.lake import Partition
from app.pipeline.tables import Table

_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the columns of a table, in order."""
    fields = [column.split() for column in table.ddl.replace("\n", " ").split(",")]
    return pa.schema([(name, _TYPES[kind]) for name, kind in fields])


def read_arrow(folder: Path, table: Table) -> pa.Table:
    """Return the rows of a published table, in the order of its files; none where it is missing.

    Only for small tables: all rows are brought into this process.
    """
    if not has_table(folder, table):
        return arrow_schema(table).empty_table()
    return read_files(folder / table.name, table)


def read_files(place: Path, table: Table) -> pa.Table:
    """Return the rows of a table below the folder that holds its partitions."""
    # Brings pandas along, which takes longer to import than all of this program.
    from pyarrow.dataset import dataset, partitioning  # noqa: PLC0415

    schema = arrow_schema(table)
    kinds = pa.schema([(name, pa.string()) for name in table.partitions])
    flavor = partitioning(kinds, flavor="hive") if table.partitions else None
    parts = [
        dataset([str(file)], format="parquet", partitioning=flavor, partition_base_dir=str(place))
        for file in sorted(place.rglob("*.parquet"))
    ]
    rows = [part.to_table() for part in parts]
    typed = [_typed(row, schema) for row in rows]
    return pa.concat_tables(typed) if typed else schema.empty_table()


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring columns into order and type; one that an older file lacks is null."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def write_arrow(
    rows: pa.Table, table: Table, run: RunFolder, *, replaces: Iterable[Partition] = ()
) -> None:
    """Write the rows of a table aside; ``run.publish`` puts them in their place.

    Args:
        rows: The columns of ``arrow_schema``.
        table: Its layout.
        run: Where to.
        replaces: Partitions that this run is about: without rows they are empty afterwards.
    """
    keys = [(name, "ascending") for name in (*table.partitions, *table.order)]
    place = run.aside(table)
    place.mkdir(parents=True, exist_ok=True)
    ordered = rows.select(arrow_schema(table).names).cast(arrow_schema(table)).sort_by(keys)
    if table.partitions:
        pq.write_to_dataset(
            ordered, place, partition_cols=list(table.partitions), compression="zstd"
        )
    else:
        pq.write_table(ordered, place / "part-00000.parquet", compression="zstd")
    run.wrote(table, replaces)
