"""Tables in folders of this machine, read into columns without Spark.

Spark needs seconds to plan and read hundreds of folders and to hand their rows to Python, pyarrow
tenths of a second for the same files. What is in no folder of this machine, or in several lakes,
or more than fits here, is left to Spark.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem
from pyspark.sql.pandas.types import to_arrow_schema

from app.pipeline.errors import InfrastructureError
from app.pipeline.folders import folder_here, partitions_below, values_of, visible
from app.pipeline.lake import Lake, Partition, schema_of
from app.pipeline.tables import REVISION, Table

MOST_BYTES: Final = 2**28
"""Of files, which are compressed; columns take about five times as much memory."""

_ATTEMPTS: Final = 100

Files = dict[Path, tuple[str, ...]]
"""The partition values of each file."""


@dataclass(frozen=True, slots=True)
class LocalPartitions:
    """Partitions of a table on this machine, each of which is read when it is asked for.

    Attributes:
        folders: In the order that was asked for.
        schema: Of the columns that are read; those that a file lacks are null.
    """

    folders: Sequence[Path]
    schema: pa.Schema

    def count(self) -> int:
        """Return how many rows they have, from the footers of their files."""
        return sum(map(self.rows_of, self.folders))

    def rows_of(self, folder: Path) -> int:
        """Return how many rows one of them has."""
        return sum(file.metadata.num_rows for _, file in _open_files(folder))

    def read(self, folder: Path) -> pa.Table:
        """Return the rows of one of them, as its files have them in the order of their names.

        Raises:
            InfrastructureError: A file is broken.
        """
        own = values_of(f"{folder}/", self.schema.names)
        names = [name for name in self.schema.names if name not in own]
        read = []
        for path, file in _open_files(folder):
            with _named(path):
                read.append(file.read(columns=names, use_threads=False))
        rows = pa.concat_tables([*read, self.schema.empty_table()], promote_options="permissive")
        columns = {name: rows[name] for name in names}
        for name, text in own.items():
            value = pa.scalar(text).cast(self.schema.field(name).type)
            columns[name] = pa.repeat(value, len(rows))
        return pa.table(columns).select(self.schema.names).cast(self.schema)


def _open_files(folder: Path) -> list[tuple[Path, pq.ParquetFile]]:
    """Open the files of a folder, again where another run has replaced them meanwhile."""
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            opened = []
            for path in visible(folder):
                with _named(path):
                    opened.append((path, pq.ParquetFile(path)))
            return opened
    return []


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file that is broken.

    Raises:
        InfrastructureError: It is.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        message = f"{path} cannot be read: {error}"
        raise InfrastructureError(message) from error


def local_partitions(
    lakes: Sequence[Lake], table: Table, partitions: Collection[Partition], names: Sequence[str]
) -> LocalPartitions | None:
    """Return partitions to read one by one, or null where this process cannot read them by itself.

    Args:
        lakes: As of ``local_columns``.
        table: Has no revisions.
        partitions: As of ``local_columns``.
        names: Of the columns; those that a file lacks are null.
    """
    folder = _folder_of(lakes, table)
    if folder is None:
        return None
    below = partitions_below(folder, table.partitions, partitions)
    found = {values: path for path, values in below}
    wanted = (tuple(item[name] for name in table.partitions) for item in partitions)
    schema = to_arrow_schema(schema_of(table))
    return LocalPartitions(
        [found[values] for values in wanted if values in found],
        pa.schema([schema.field(name) for name in names]),
    )


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

    Raises:
        InfrastructureError: A file is broken.
    """
    folder = _folder_of(lakes, table)
    if folder is None:
        return None
    for _ in range(_ATTEMPTS):
        try:
            files = files_below(folder, table, partitions)
            if files is None or sum(file.stat().st_size for file in files) > MOST_BYTES:
                return None
            return _read(files, table, names)
        except FileNotFoundError:
            # Another run has replaced the partition meanwhile.
            continue
    return None


def _folder_of(lakes: Sequence[Lake], table: Table) -> Path | None:
    """Return where this process finds a table of one lake by itself."""
    if len(lakes) != 1 or lakes[0].is_catalog:
        return None
    return folder_here(lakes[0].session, lakes[0].address(table))


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


def _read(files: Mapping[Path, tuple[str, ...]], table: Table, names: Sequence[str]) -> pa.Table:
    schema = to_arrow_schema(schema_of(table))
    chosen = pa.schema([schema.field(name) for name in names])
    if not files:
        return chosen.empty_table()
    guarantees = {values: _guarantee(schema, table, values) for values in files.values()}
    dataset = pads.FileSystemDataset.from_paths(
        [f"{file}" for file in files],
        schema=chosen,
        format=pads.ParquetFileFormat(),
        filesystem=LocalFileSystem(),
        partitions=[guarantees[values] for values in files.values()],
    )
    try:
        return dataset.to_table()
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException):
        # Not all of its errors name the file.
        for file in files:
            with _named(file):
                pq.read_table(file)
        raise


def _guarantee(schema: pa.Schema, table: Table, values: Sequence[str]) -> pads.Expression:
    """Say what the partition columns of a file are."""
    claim = pads.scalar(True)
    for name, text in zip(table.partitions, values, strict=True):
        claim &= pads.field(name) == pa.scalar(text).cast(schema.field(name).type)
    return claim
