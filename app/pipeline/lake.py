"""The tables of a run: folders of Parquet, or a catalog's tables.

A write replaces whole partitions, and what is cut off before it is committed leaves the former
rows. Tasks that reach a folder of this machine write it themselves (``folder_writer``), elsewhere
Spark's own writers and committers do. A URI keeps its scheme, and one without it is on Hadoop's
default file system.

Hours are of one run. Days are summed up by all runs that have an hour of them, maybe at the same
time: each writes a revision of the day, in a folder that no other run touches, and the newest
counts. It is named by the time at which its run began to list the hours, after its own were
written. Say a revision lacks an hour: then that was written later, and the revision of its run is
newer. Clocks of several machines differ, so a revision is also newer than all that its run finds,
and a run that finds other hours at its end sums up again (``results.settled``).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, reduce
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, StructType
from pyspark.sql.utils import is_remote

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folder_writer import ByTasks, folder_of_tasks, write_here
from app.pipeline.folders import (
    ABSENT,
    files_behind,
    folder_here,
    folder_of,
    folder_patterns,
    list_files,
    listed_here,
    newest_revisions,
    retried,
    values_of,
)
from app.pipeline.partitions import Partition, among, in_order, is_within, without
from app.pipeline.tables import REVISION, Table

_Rows = Mapping[tuple[str, ...], int]
"""How many rows partitions have, by their values."""

_DICTIONARY: Final = "parquet.enable.dictionary"
_CONFLICTS: Final = (
    *("DELTA_CONCURRENT", "ConcurrentAppendException", "ConcurrentDelete", "ConcurrentTransaction"),
    *("CommitFailedException", "Found conflicting files", "ALREADY_EXISTS"),
)
"""What Delta and Iceberg say where another transaction was first."""


@cache
def schema_of(table: Table) -> StructType:
    """Return the columns of a table."""
    return cast("StructType", StructType.fromDDL(table.ddl))


@cache
def arrow_schema(ddl: str) -> pa.Schema:
    """Return columns of Spark as Arrow has them."""
    return to_arrow_schema(cast("StructType", StructType.fromDDL(ddl)))


def schema_of_columns(table: Table, names: Iterable[str]) -> pa.Schema:
    """Return some columns of a table as Arrow has them."""
    schema = arrow_schema(table.ddl)
    return pa.schema([schema.field(name) for name in names])


class Lake:
    """The tables below one URI, or those of one catalog.

    Attributes:
        name: The URI above the folders of the tables, or the catalog with its namespace.
        is_catalog: Whether tables are called ``NAME.<table>``.
    """

    def __init__(self, session: SparkSession, name: str, *, catalog: bool = False) -> None:
        self.session = session
        self.name = name
        self.is_catalog = catalog

    def address(self, table: Table) -> str:
        """Return what Spark calls a table."""
        separator, name = (".", self.name) if self.is_catalog else ("/", self.name.rstrip("/"))
        return f"{name}{separator}{table.name}"

    def has(self, table: Table) -> bool:
        """Tell whether there is such a table, maybe without rows."""
        here = self._here(table)
        if here is not None:
            return here.is_dir()
        try:
            self._rows(table).schema  # noqa: B018 - Spark looks for it
        except AnalysisException as error:
            if error.getCondition() in ABSENT:
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
        return _typed(newest_revisions(self._rows(table), table), table)

    def read_in(self, table: Table, partitions: Sequence[Partition]) -> DataFrame:
        """Return the rows of partitions, without a look at the others.

        Args:
            table: Which; where it is missing there are no rows.
            partitions: May lack ``cluster_id``, or have it alone; columns that the table lacks are
                left out.
        """
        if self.is_catalog:
            if not self.has(table):
                return self.nothing(table)
            rows = self._rows(table)
        else:
            rows = newest_revisions(self._folders(table, partitions), table)
        return _typed(rows, table).where(is_within(partitions, table.partitions))

    def partitions(
        self, table: Table, within: Sequence[Partition] | None = None
    ) -> list[Partition]:
        """Return the partitions of a table, in order; in a folder those too that a run emptied.

        Args:
            within: Look for these alone, as ``read_in`` takes them.
        """
        if self.is_catalog:
            frame = self.read(table) if within is None else self.read_in(table, within)
            values = frame.select(*(sf.col(name).cast("string") for name in table.partitions))
            return in_order(row.asDict() for row in values.distinct().collect())
        listed = self._listed(table, table.partitions, within).values()
        return in_order(map(dict, {tuple(item.items()) for item in listed}))

    def files(self, table: Table, partitions: Sequence[Partition]) -> set[str]:
        """Return the files of partitions: as long as they are the same, so are the rows."""
        if not self.is_catalog:
            return {*self._listed(table, table.partitions, partitions)}
        if self.session.catalog.tableExists(self.address(table)):
            # Catalogs remember what a table was, which other processes may have changed.
            self.session.catalog.refreshTable(self.address(table))
        names = self.read_in(table, partitions).select(sf.input_file_name())
        return {row[0] for row in names.distinct().collect()}

    def _listed(
        self, table: Table, levels: Sequence[str], within: Sequence[Partition] | None
    ) -> dict[str, Partition]:
        """Return what is in the folders of partitions, with the values of these levels."""
        here = self._here(table)
        found: dict[str, Partition]
        if here:
            listed = listed_here(here, levels, within)
            found = {f"file:{path}": values for path, values in listed.items()}
        else:
            rows = self._rows(table) if within is None else self._folders(table, within)
            found = {file: values_of(file, levels) for file in files_behind(rows)}
        is_wanted = among(within, table)
        return {file: values for file, values in found.items() if is_wanted(values)}

    def write(
        self,
        rows: DataFrame | ByTasks | pa.Table,
        table: Table,
        replaces: Iterable[Partition] = (),
        *,
        revision: str = "",
        is_sorted: bool = False,
    ) -> int:
        """Replace the partitions that the rows are of, and return how many rows were written.

        A frame may read the same table. Each of its tasks writes a file for each of its
        partitions, so spread the rows over the tasks as the files are to be.

        Args:
            rows: The columns of the table; those of a frame in any order.
            replaces: All partitions that the run is about: without rows they are empty afterwards.
            revision: Of a table with revisions: what ``next_revision`` returned before that was
                read which the rows follow from; default the next one.
            is_sorted: Whether each task of a frame has the rows of a partition in the order of the
                table; those of others always have.

        Raises:
            InfrastructureError: What the tasks wrote is not where it is read.
        """
        if table.has_revisions and not revision and not self.is_catalog:
            revision = self.next_revision(table, self.partitions(table) if self.has(table) else ())
        if isinstance(rows, DataFrame):
            typed, by = _typed(rows, table), (*table.partitions, *table.order)
            rows = typed if is_sorted else typed.sortWithinPartitions(*by)
        if isinstance(rows, pa.Table):
            rows = rows.sort_by([(name, "ascending") for name in (*table.partitions, *table.order)])
        here = self._here(table) if isinstance(rows, pa.Table) else self.folder_of_tasks(table)
        about = [dict(item) for item in replaces]
        if here:
            written: _Rows = write_here(rows, schema_of(table), table, here, revision)
        else:
            written = self._write_by_spark(self._frame_of(rows, table), table, about, revision)
        filled = [dict(zip(table.partitions, values, strict=True)) for values in written]
        if not self.is_catalog:
            self._empty_others(table, filled, without(about, filled), revision)
        return sum(written.values())

    def folder_of_tasks(self, table: Table) -> Path | None:
        """Return the folder of a table that tasks reach as this process does; null elsewhere."""
        return None if self.is_catalog else folder_of_tasks(self.session, self.address(table))

    def _frame_of(self, rows: DataFrame | ByTasks | pa.Table, table: Table) -> DataFrame:
        if isinstance(rows, DataFrame):
            return rows
        if isinstance(rows, ByTasks):
            return rows.rows(table.ddl)
        # Without rows there is no batch that would tell Spark the columns.
        return self.session.createDataFrame(rows if len(rows) else [], schema_of(table)).coalesce(1)

    def _write_by_spark(
        self, rows: DataFrame, table: Table, replaces: Sequence[Partition], revision: str
    ) -> _Rows:
        # A catalog may plan the rows anew, as Delta does.
        cached = rows.persist()
        try:
            due = _count(cached, table)
            if self.is_catalog:
                self._write_catalog(cached, table, replaces)
                return due
            own = [REVISION] if revision else []
            seen = cached.withColumn(REVISION, sf.lit(revision)) if revision else cached
            (
                seen.write.mode("overwrite")
                .option("partitionOverwriteMode", "dynamic")
                .options(**{f"{_DICTIONARY}#{name}": "false" for name in _numbers(table)})
                .partitionBy(*table.partitions, *own)
                .parquet(self.address(table))
            )
        finally:
            cached.unpersist()
        self._find(table, due, revision)
        return due

    def _write_catalog(self, rows: DataFrame, table: Table, scope: Sequence[Partition]) -> None:
        """Replace partitions in a transaction, anew where another one was first."""
        retried(lambda: self._commit(rows, table, scope), _CONFLICTS)

    def _commit(self, rows: DataFrame, table: Table, scope: Sequence[Partition]) -> None:
        writer = rows.writeTo(self.address(table))
        if not self.session.catalog.tableExists(self.address(table)):
            writer.partitionedBy(*(sf.col(name) for name in table.partitions)).create()
        elif scope:
            # Without rows `overwritePartitions` would change nothing.
            writer.overwrite(is_within(scope, table.partitions))
        else:
            writer.overwritePartitions()

    def _empty_others(
        self, table: Table, filled: Sequence[Partition], others: Sequence[Partition], revision: str
    ) -> None:
        """Leave partitions without rows, and remove the older revisions of all."""
        if not revision:
            self.empty(table, others)
            return
        former = self._revisions_of(table, [*filled, *others])
        older = {folder: day for folder, day in former.items() if day[REVISION] < revision}
        is_gone = among(others, table)
        empty = {folder_of(folder) for folder, day in older.items() if is_gone(day)}
        self._write_nothing(table, (f"{day}/{REVISION}={revision}" for day in empty))
        self._remove(older)

    def next_revision(self, table: Table, days: Sequence[Partition]) -> str:
        """Return a name for a revision of days, newer than those that there are."""
        found = {} if self.is_catalog else self._revisions_of(table, days)
        named = (day[REVISION].partition("-")[0] for day in found.values())
        times = [datetime.strptime(time, "%Y%m%dT%H%M%S%f%z") for time in named]
        newest = max([datetime.now(UTC), *(time + timedelta.resolution for time in times)])
        return f"{newest:%Y%m%dT%H%M%S%fZ}-{uuid4().hex[:12]}"

    def _revisions_of(self, table: Table, days: Sequence[Partition]) -> dict[str, Partition]:
        """Return the folders of revisions of days, with what they are of."""
        listed = self._listed(table, (*table.partitions, REVISION), days)
        return {folder_of(file): values for file, values in listed.items()}

    def _find(self, table: Table, due: _Rows, revision: str) -> None:
        """See that the rows of a write are where they are read.

        Another run may have written a newer revision of a day meanwhile, and have removed this one.

        Raises:
            InfrastructureError: They are not, and there is no newer revision either.
        """
        filled = [dict(zip(table.partitions, values, strict=True)) for values in due]
        found = retried(lambda: self._found(table, filled, revision))
        missing = [day for day in filled if found.get((*day.values(),)) != due[*day.values(),]]
        there = self._revisions_of(table, missing).values() if revision and missing else ()
        is_newer = among([day for day in there if day[REVISION] > revision], table)
        if not all(map(is_newer, missing)):
            message = (
                f"{sum(due.values())} rows of {table.name} were written and {sum(found.values())} "
                f"are in {self.address(table)}: name an --out that this machine and all workers "
                "share."
            )
            raise InfrastructureError(message)

    def _found(self, table: Table, filled: Sequence[Partition], revision: str) -> _Rows:
        rows = self._folders(table, filled).where(is_within(filled, table.partitions))
        if revision:
            # Without a single file of these days there is no such column.
            if REVISION not in rows.columns:
                return {}
            rows = rows.where(sf.col(REVISION) == revision)
        return _count(rows, table)

    def empty(self, table: Table, partitions: Sequence[Partition]) -> None:
        """Leave partitions without rows, where there are any; of a table without revisions."""
        if not partitions:
            return
        if self.is_catalog:
            if self.session.catalog.tableExists(self.address(table)):
                self._write_catalog(self.nothing(table), table, partitions)
            return
        files = self._listed(table, table.partitions, partitions)
        self._write_nothing(table, {folder_of(file) for file in files})

    def _write_nothing(self, table: Table, folders: Iterable[str]) -> None:
        nothing = self.nothing(table).drop(*table.partitions)
        for folder in sorted(folders):
            nothing.write.mode("overwrite").parquet(folder)

    def _remove(self, folders: Iterable[str]) -> None:
        """Delete folders that no reader looks at; Spark Connect can delete none."""
        if is_remote():
            return
        session: Any = self.session
        hadoop = session._jvm.org.apache.hadoop  # noqa: SLF001 - PySpark has no function that deletes
        settings = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        for folder in sorted(folders):
            path = hadoop.fs.Path(folder)
            path.getFileSystem(settings).delete(path, True)

    def _here(self, table: Table) -> Path | None:
        """Return the folder of a table that this process reaches by itself."""
        return None if self.is_catalog else folder_here(self.session, self.address(table))

    def _rows(self, table: Table) -> DataFrame:
        """Return all rows, of a folder with its revisions."""
        if self.is_catalog:
            return self.session.table(self.address(table))
        reader = self.session.read.schema(schema_of(table))
        return list_files(reader, self.address(table))

    def _folders(self, table: Table, partitions: Sequence[Partition]) -> DataFrame:
        """Return the rows below the folders of partitions, and maybe of others of their days."""
        if not partitions:
            return self.nothing(table)
        base = self.address(table)
        reader = self.session.read.schema(schema_of(table)).option("basePath", base)
        frames = []
        for pattern in folder_patterns(table, partitions):
            try:
                frames.append(list_files(reader, f"{base}/{pattern}"))
            except AnalysisException as error:
                if error.getCondition() not in ABSENT:
                    raise
        if not frames:
            return self.nothing(table)
        # A folder whose first file is on its way has no revision yet.
        return reduce(lambda rows, more: rows.unionByName(more, allowMissingColumns=True), frames)

    def nothing(self, table: Table) -> DataFrame:
        """Return a table's columns without rows."""
        return self.session.createDataFrame([], schema_of(table))


def _count(rows: DataFrame, table: Table) -> _Rows:
    values = [sf.col(name).cast("string").alias(name) for name in table.partitions]
    return {(*row[:-1],): row[-1] for row in rows.groupBy(*values).count().collect()}


def _typed(rows: DataFrame, table: Table) -> DataFrame:
    # As text, which costs one call to the JVM, not several a column.
    columns = ((each.name, each.dataType.simpleString()) for each in schema_of(table))
    return rows.selectExpr(*(f"cast(`{name}` as {kind}) as `{name}`" for name, kind in columns))


def read_all(lakes: Sequence[Lake], table: Table) -> DataFrame:
    """Return the rows of a table in all lakes.

    Raises:
        UsageError: One of them has no such table, or there is none.
    """
    if not lakes:
        message = f"There is no table {table.name} in any --input."
        raise UsageError(message)
    return reduce(DataFrame.unionByName, (lake.read(table) for lake in lakes))


def read_first(
    lakes: Sequence[Lake],
    table: Table,
    partitions: Sequence[Partition],
    keys: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of partitions in all lakes; of those with the same keys the first lake's.

    Args:
        lakes: One may lack the table.
        partitions: As for ``Lake.read_in``.
        keys: Beside its partition columns; without them those of its order.
    """
    same = [*table.partitions, *(keys or table.order)]

    def both(rows: DataFrame, more: DataFrame) -> DataFrame:
        return rows.unionByName(more.join(rows.select(*same), same, "left_anti"))

    return reduce(both, (lake.read_in(table, partitions) for lake in lakes))


def partitions_of(
    lakes: Iterable[Lake], table: Table, within: Sequence[Partition] | None = None
) -> list[Partition]:
    """Return the partitions of a table in all lakes, each once, in order.

    Args:
        within: Look for these alone, as ``Lake.read_in`` takes them.
    """
    found = {tuple(item.items()) for lake in lakes for item in lake.partitions(table, within)}
    return in_order(dict(item) for item in found)


def _numbers(table: Table) -> list[str]:
    """Return the columns whose values mostly differ: a dictionary of them costs time and space."""
    return [each.name for each in schema_of(table) if isinstance(each.dataType, DoubleType)]
