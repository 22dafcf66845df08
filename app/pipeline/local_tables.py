"""Tables in folders of this machine, read into columns without Spark.

Spark needs seconds to plan and read hundreds of folders and to hand their rows to Python, pyarrow
tenths of a second for the same files. What is in no folder of this machine, or in several lakes,
or more than fits here, is left to Spark.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow.fs import LocalFileSystem
from pyspark.sql.pandas.types import to_arrow_schema

from app.pipeline.folders import folder_here, partitions_below, visible
from app.pipeline.lake import Lake, Partition, schema_of
from app.pipeline.tables import REVISION, Table

MOST_BYTES: Final = 2**28
"""Of files, which are compressed; columns take about five times as much memory."""

_ATTEMPTS: Final = 100
_Read = TypeVar("_Read")

Files = dict[Path, tuple[str, ...]]
"""The partition values of each file."""


@dataclass(frozen=True, slots=True)
class LocalPartitions:
    """Partitions of a table on this machine, each of which is read when it is asked for.

    Attributes:
        folders: In the order that was asked for, with what their partition columns are.
        schema: Of the columns that are read; those that a file lacks are null.
    """

    folders: Mapping[Path, pads.Expression]
    schema: pa.Schema

    def count(self) -> int:
        """Return how many rows they have, from the footers of their files."""
        return sum(map(self.rows_of, self.folders))

    def rows_of(self, folder: Path) -> int:
        """Return how many rows one of them has."""
        return _again(lambda: int(self._dataset(folder).count_rows()))

    def read(self, folder: Path) -> pa.Table:
        """Return the rows of one of them, as its files have them in the order of their names."""
        return _again(lambda: self._dataset(folder).to_table(use_threads=False))

    def _dataset(self, folder: Path) -> pads.Dataset:
        files = visible(folder) if folder.is_dir() else []
        return _dataset_of(dict.fromkeys(files, self.folders[folder]), self.schema)


def local_partitions(
    lakes: Sequence[Lake], table: Table, partitions: Collection[Partition], names: Sequence[str]
) -> LocalPartitions | None:
    """Return partitions to read one by one, or null where this process cannot read them by itself.

    Args:
        lakes: As of ``local_columns``.
        table: Has no revisions.
        partitions: As of ``local_columns``.
        names: The same.
    """
    folder = _folder_of(lakes, table)
    if folder is None:
        return None
    schema = to_arrow_schema(schema_of(table))
    found = {
        values: path for path, values in partitions_below(folder, table.partitions, partitions)
    }
    wanted = (tuple(item[name] for name in table.partitions) for item in partitions)
    folders = {
        found[values]: _guarantee(schema, table, values) for values in wanted if values in found
    }
    return LocalPartitions(folders, _chosen(schema, names))


def local_columns(
    lakes: Sequence[Lake],
    table: Table,
    partitions: Collection[Partition] | None,
    names: Sequence[str],
) -> pa.Table | None:
    """Return columns of partitions, or null where this process cannot read them by itself.

    Args:
        lakes: Where the table is.
        table: Which; of revisions the newest count.
        partitions: Have all partition columns of the table; null is everywhere.
        names: Of the columns; those that a file lacks are null.
    """
    folder = _folder_of(lakes, table)
    schema = to_arrow_schema(schema_of(table))

    def read() -> pa.Table | None:
        files = files_below(folder, table, partitions) if folder else None
        if files is None or sum(file.stat().st_size for file in files) > MOST_BYTES:
            return None
        claims = {values: _guarantee(schema, table, values) for values in files.values()}
        of_files = {file: claims[values] for file, values in files.items()}
        return _dataset_of(of_files, _chosen(schema, names)).to_table()

    return _again(read)


def _folder_of(lakes: Sequence[Lake], table: Table) -> Path | None:
    if len(lakes) != 1 or lakes[0].is_catalog:
        return None
    return folder_here(lakes[0].session, lakes[0].address(table))


def _again(read: Callable[[], _Read]) -> _Read:
    """Read something, again where another run has replaced its files meanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


def files_below(
    folder: Path, table: Table, partitions: Collection[Partition] | None
) -> Files | None:
    """Return the files of partitions; null where folders are those of an earlier version.

    Args:
        folder: Of the table.
        table: Which; of revisions the newest count.
        partitions: As for ``local_columns``.
    """
    wanted = {tuple(item[name] for name in table.partitions) for item in partitions or ()}
    found: Files = {}
    for partition, values in partitions_below(folder, table.partitions, partitions):
        if partitions is not None and values not in wanted:
            continue
        files = visible(partition)
        if table.has_revisions:
            if not files[-1].name.startswith(f"{REVISION}="):
                return None
            files = visible(files[-1])
        found |= dict.fromkeys(files, values)
    return found


def _chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _dataset_of(files: Mapping[Path, pads.Expression], schema: pa.Schema) -> pads.Dataset:
    return pads.FileSystemDataset.from_paths(
        [f"{file}" for file in files],
        schema=schema,
        format=pads.ParquetFileFormat(),
        filesystem=LocalFileSystem(),
        partitions=[*files.values()],
    )


def _guarantee(schema: pa.Schema, table: Table, values: Sequence[str]) -> pads.Expression:
    """Say what the partition columns of a file are."""
    claim = pads.scalar(True)
    for name, text in zip(table.partitions, values, strict=True):
        claim &= pads.field(name) == pa.scalar(text).cast(schema.field(name).type)
    return claim
