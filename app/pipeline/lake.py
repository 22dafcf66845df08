"""The tables of a run, as Spark reads and writes them: folders of Parquet, or a catalog's tables.

Spark's own writers and committers do it all: a write replaces whole partitions, and what is cut off
before it is committed leaves the former rows. A URI keeps its scheme, and one without it is on
Hadoop's default file system.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import reduce
from operator import or_
from typing import Final, cast
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DoubleType, StructType

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.tables import Table

Partition = Mapping[str, str]
"""The values of a table's partition columns, as text."""

_ROWS: Final = "rows"
_DICTIONARY: Final = "parquet.enable.dictionary"
_ABSENT: Final = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")


def schema_of(table: Table) -> StructType:
    """Return the columns of a table."""
    return cast("StructType", StructType.fromDDL(table.ddl))


class Lake:
    """The tables below one URI, or those of one catalog.

    Attributes:
        session: Reads and writes.
        name: The URI above the folders of the tables, or the catalog with its namespace.
    """

    def __init__(self, session: SparkSession, name: str, *, catalog: bool = False) -> None:
        """Name the tables; nothing is read.

        Args:
            session: Reads and writes.
            name: A URI or path, else the catalog.
            catalog: Whether tables are called ``NAME.<table>``.
        """
        self.session = session
        self.name = name
        self._catalog = catalog

    def address(self, table: Table) -> str:
        """Return what Spark calls a table."""
        separator, name = (".", self.name) if self._catalog else ("/", self.name.rstrip("/"))
        return f"{name}{separator}{table.name}"

    def has(self, table: Table) -> bool:
        """Tell whether there is such a table, maybe without rows."""
        try:
            self._rows(table).schema  # noqa: B018 - Spark looks for it
        except AnalysisException as error:
            if error.getCondition() in _ABSENT:
                return False
            raise
        return True

    def require(self, table: Table) -> None:
        """Look for a table.

        Raises:
            UsageError: There is no such table.
        """
        if not self.has(table):
            message = f"There is no table {table.name} in {self.name}."
            raise UsageError(message)

    def read(self, table: Table) -> DataFrame:
        """Return the rows of a table, with the columns and types of ``tables``.

        Raises:
            UsageError: There is no such table.
        """
        self.require(table)
        rows = self._rows(table)
        return rows.select(*(sf.col(each.name).cast(each.dataType) for each in schema_of(table)))

    def partitions(self, table: Table) -> list[Partition]:
        """Return the partitions of a table, in order; in a folder those too that a run emptied."""
        if not self._catalog:
            found = {tuple(_values(file).items()) for file in self._files(table)}
            return [dict(item) for item in sorted(found)]
        values = self.read(table).select(
            *(sf.col(name).cast("string") for name in table.partitions)
        )
        return [row.asDict() for row in values.distinct().sort(*table.partitions).collect()]

    def write(self, frame: DataFrame, table: Table, replaces: Iterable[Partition] = ()) -> int:
        """Replace the partitions that the rows are of, and return how many rows were written.

        The frame may read the same table. Each of its tasks writes a file for each of its
        partitions, so spread the rows over the tasks as the files are to be.

        Args:
            frame: Has the columns of the table, in any order.
            table: Its columns, types and layout; without partition columns all rows are replaced.
            replaces: All partitions that the run is about: without rows they are empty afterwards.

        Raises:
            InfrastructureError: What the tasks wrote is not where it is read.
        """
        typed = frame.select(*(frame[each.name].cast(each.dataType) for each in schema_of(table)))
        rows = typed.sortWithinPartitions(*table.partitions, *table.order)
        scope = [dict(item) for item in replaces]
        if self._catalog:
            # Made first: a catalog may plan the rows anew, as Delta does, unobserved. Tasks of a
            # query's last stage are observed once; those of an earlier one, such as below a count,
            # again where an executor is lost with what they have made.
            rows.persist().write.format("noop").mode("overwrite").save()
            written = rows.count()
            self._write_catalog(rows, table, scope)
            rows.unpersist()
            return written
        return self._write_folder(rows, table, scope)

    def _write_catalog(self, rows: DataFrame, table: Table, scope: Sequence[Partition]) -> None:
        writer = rows.writeTo(self.address(table))
        if not self.session.catalog.tableExists(self.address(table)):
            by = [sf.col(name) for name in table.partitions]
            (writer.partitionedBy(*by) if by else writer).create()
        elif not table.partitions:
            writer.overwrite(sf.lit(True))
        elif scope:
            # Without rows `overwritePartitions` would change nothing.
            writer.overwrite(reduce(or_, (_is_of(item) for item in scope)))
        else:
            writer.overwritePartitions()

    def _write_folder(self, rows: DataFrame, table: Table, scope: Sequence[Partition]) -> int:
        counted = Observation()
        before = self._files(table) if self.has(table) else set()
        (
            rows.observe(counted, sf.count(sf.lit(1)).alias(_ROWS))
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .options(**{f"{_DICTIONARY}#{name}": "false" for name in _numbers(table)})
            .partitionBy(*table.partitions)
            .parquet(self.address(table))
        )
        after = self._files(table)
        written, due = sorted(after - before), int(counted.get[_ROWS])
        reader = self.session.read.schema(schema_of(table))  # Spark would run a job to find it
        found = reader.parquet(*written).count() if written else 0
        if found != due:
            message = (
                f"{due} rows of {table.name} were written and {found} are in "
                f"{self.address(table)}: name an --out that this machine and all workers share."
            )
            raise InfrastructureError(message)
        if table.partitions:
            self._empty({_folder(file) for file in before & after if _values(file) in scope}, table)
        return found

    def _empty(self, folders: Iterable[str], table: Table) -> None:
        columns = [each for each in schema_of(table) if each.name not in table.partitions]
        nothing = self.session.createDataFrame([], StructType(columns))
        for folder in sorted(folders):
            nothing.write.mode("overwrite").parquet(folder)

    def _rows(self, table: Table) -> DataFrame:
        if self._catalog:
            return self.session.table(self.address(table))
        return self.session.read.schema(schema_of(table)).parquet(self.address(table))

    def _files(self, table: Table) -> set[str]:
        """Return the files of a table as Hadoop calls them, with escaped partition values."""
        return {unquote(file) for file in self._rows(table).inputFiles()}


def files_of(session: SparkSession, uris: Sequence[str]) -> list[tuple[str, int, str]]:
    """Return the path, size in bytes and time of change (UTC) of all files below, in order.

    What is not there has none; names that begin with _ or . hold no rows.
    """
    found: set[tuple[str, int, str]] = set()
    changed = sf.col("modificationTime").cast("string")
    for uri in uris:
        reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            # Spark Connect looks for the folder when rows are asked for.
            files = reader.load(uri).select("path", "length", changed).collect()
        except AnalysisException as error:
            if error.getCondition() in _ABSENT:
                continue
            raise
        found |= {(row[0], row[1], row[2]) for row in files}
    return sorted(found)


def read_all(lakes: Sequence[Lake], table: Table) -> DataFrame:
    """Return the rows of a table in all lakes.

    Raises:
        UsageError: One of them has no such table, or there is none.
    """
    if not lakes:
        message = f"There is no table {table.name} in any --input."
        raise UsageError(message)
    return reduce(DataFrame.unionByName, (lake.read(table) for lake in lakes))


def read_first(lakes: Sequence[Lake], table: Table, keys: Sequence[str]) -> DataFrame:
    """Return the rows of a table in all lakes; of those with the same keys the first lake's.

    Raises:
        UsageError: One of them has no such table.
    """
    same = ["cluster_id", *keys]
    rows = read_all(lakes[:1], table)
    for lake in lakes[1:]:
        more = lake.read(table)
        rows = rows.unionByName(more.join(rows.select(*same), same, "left_anti"))
    return rows


def read_any(lakes: Iterable[Lake], table: Table) -> DataFrame | None:
    """Return the rows of a table in those lakes that have it, or null where none has."""
    having = [lake for lake in lakes if lake.has(table)]
    return read_all(having, table) if having else None


def partitions_of(lakes: Iterable[Lake], table: Table) -> list[Partition]:
    """Return the partitions of a table in all lakes, each once, in order."""
    found = {tuple(item.items()) for lake in lakes for item in lake.partitions(table)}
    return [dict(item) for item in sorted(found)]


def is_of_days(days: Iterable[Partition]) -> Column:
    """Tell whether a row is of one of the partitions by day."""
    of_cluster: dict[str, list[date]] = {}
    for day in days:
        of_cluster.setdefault(day["cluster_id"], []).append(date.fromisoformat(day["dt"]))
    claims = (
        (sf.col("cluster_id") == cluster) & sf.col("dt").isin(dates)
        for cluster, dates in of_cluster.items()
    )
    return reduce(or_, claims, sf.lit(False))


def _numbers(table: Table) -> list[str]:
    """Return the columns whose values mostly differ: a dictionary of them costs time and space."""
    return [each.name for each in schema_of(table) if isinstance(each.dataType, DoubleType)]


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _values(file: str) -> Partition:
    """Read ``…/cluster_id=…/dt=…/part-…`` as Spark writes it."""
    named = (item.partition("=") for item in _folder(file).split("/") if "=" in item)
    return {name: unquote(value) for name, _, value in named}


def _is_of(partition: Partition) -> Column:
    return reduce(Column.__and__, (sf.col(name) == value for name, value in partition.items()))
