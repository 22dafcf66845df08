"""The tables of the pipeline without Spark: small ones, in this process."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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
    fields = [column.split() for column in table.ddl.replace("\n", " ").split(",")]
    return pa.schema([(name, _TYPES[kind]) for name, kind in fields])


def read_arrow(folder: Path, table: Table) -> pa.Table:
    """Return the rows of a table below a folder, in the order of its files."""
    from pyarrow.dataset import dataset, partitioning  # noqa: PLC0415 - brings pandas along

    schema, base = arrow_schema(table), folder / table.name
    kinds = pa.schema([(name, pa.string()) for name in table.partitions])
    flavor = partitioning(kinds, flavor="hive") if table.partitions else None
    rows = [
        dataset([str(file)], format="parquet", partitioning=flavor, partition_base_dir=str(base))
        .to_table()
        .select(schema.names)
        .cast(schema)
        for file in sorted(base.rglob("*.parquet"))
    ]
    return pa.concat_tables(rows) if rows else schema.empty_table()


def write_arrow(rows: pa.Table, table: Table, folder: Path) -> None:
    """Write the rows of a table below a folder, beside those that are there."""
    base = folder / table.name
    base.mkdir(parents=True, exist_ok=True)
    if table.partitions:
        pq.write_to_dataset(rows, base, partition_cols=list(table.partitions))
    else:
        pq.write_table(rows, base / "part-00000.parquet")
