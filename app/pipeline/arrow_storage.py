"""Tables as they are written without Spark: small ones, by commands that need no JVM."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.folders import Partition, RunFolder
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
