"""Tables as Spark reads and writes them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from app.pipeline.errors import UsageError
from app.pipeline.folders import Partition, RunFolder, has_table
from app.pipeline.lake import schema_of
from app.pipeline.tables import SCHEMA_VERSION, Table


def require_table(folders: Sequence[Path], table: Table) -> None:
    """Look for a table in each folder: without Spark, so before it is started.

    Raises:
        UsageError: A folder has no such table.
    """
    missing = [str(folder) for folder in folders if not has_table(folder, table)]
    if missing or not folders:
        message = f"There is no table {table.name} in {', '.join(missing) or 'any --input'}."
        raise UsageError(message)


def read_table(session: SparkSession, folders: Sequence[Path], table: Table) -> DataFrame:
    """Return the rows of a table in several folders, with the columns and types of ``tables``.

    Raises:
        UsageError: A folder has no such table.
    """
    require_table(folders, table)
    schema = schema_of(table)
    first, *others = [
        session.read.schema(schema).parquet(str(folder / table.name)).select(*schema.fieldNames())
        for folder in folders
    ]
    for another in others:
        first = first.unionByName(another)
    return first


def write_table(
    frame: DataFrame, table: Table, run: RunFolder, *, replaces: Iterable[Partition] = ()
) -> None:
    """Write the rows of a table aside; ``run.publish`` puts them in their place.

    Args:
        frame: Has the columns of the table, in any order. Each task writes a file for each of its
            partitions, so spread the rows over the tasks as the files shall be.
        table: Its columns, types and layout.
        run: Where to.
        replaces: Partitions that this run is about: without rows they are empty afterwards.
    """
    schema = schema_of(table)
    typed = frame.select(*(frame[each.name].cast(each.dataType) for each in schema))
    stamped = typed.withMetadata(schema[0].name, {"schema_version": SCHEMA_VERSION})
    arranged = stamped.sortWithinPartitions(*table.partitions, *table.order)
    place = run.aside(table)
    arranged.write.mode("overwrite").partitionBy(*table.partitions).parquet(str(place))
    run.wrote(table, replaces)
