"""Tables in folders of this machine, read into columns without Spark.

Spark needs seconds to plan and read hundreds of folders and to hand their rows to Python, pyarrow
tenths of a second for the same files. What is in no folder of this machine, or in several lakes,
is left to Spark.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.errors import InfrastructureError
from app.pipeline.folders import (
    folder_here,
    listed_here,
    looked_again,
    of_an_earlier_version,
    values_of,
    visible,
)
from app.pipeline.lake import Lake, schema_of_columns
from app.pipeline.partitions import Partition, among, in_order
from app.pipeline.tables import REVISION, Table

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LocalPartitions:
    """Partitions of a table on this machine, each of which is read when it is asked for.

    Attributes:
        folders: In the order of the partitions.
        schema: Of the columns that are read; those that a file lacks are null.
        has_revisions: Whether the newest revision of each folder counts.
    """

    folders: Sequence[Path]
    schema: pa.Schema
    has_revisions: bool

    def size(self) -> int:
        """Return how many bytes their files have; columns take about five times as much memory."""
        return sum(map(self.size_of, self.folders))

    def size_of(self, folder: Path) -> int:
        """Return how many bytes the files of one of them have."""
        return sum(self._of_files(folder, lambda path: path.stat().st_size))

    def read(self, folder: Path) -> pa.Table:
        """Return the rows of one of them, as its files have them in the order of their names.

        Raises:
            InfrastructureError: A file is broken.
        """
        own = values_of(f"{folder}/", self.schema.names)
        names = [name for name in self.schema.names if name not in own]
        read = []
        for path, file in self._of_files(folder, _opened):
            with _named(path):
                read.append(file.read(columns=names, use_threads=False))
        rows = pa.concat_tables([*read, self.schema.empty_table()], promote_options="permissive")
        columns = {name: rows[name] for name in names}
        for name, text in own.items():
            value = pa.scalar(text).cast(self.schema.field(name).type)
            columns[name] = pa.repeat(value, len(rows))
        return pa.table(columns).select(self.schema.names).cast(self.schema)

    def read_all(self) -> pa.Table:
        """Return the rows of all of them.

        Raises:
            InfrastructureError: A file is broken.
        """
        with ThreadPoolExecutor() as pool:
            read = pool.map(self.read, self.folders)
            return pa.concat_tables([self.schema.empty_table(), *read])

    def _of_files(self, folder: Path, act: Callable[[Path], Result]) -> list[Result]:
        """Act on the files of a folder, again where another run has replaced them meanwhile."""

        def look() -> list[Result]:
            files = visible(folder)
            if self.has_revisions and files:
                if not files[-1].name.startswith(f"{REVISION}="):
                    raise of_an_earlier_version(f"{folder}")
                files = visible(files[-1])
            return [act(path) for path in files]

        return looked_again(look, [])


def _opened(path: Path) -> tuple[Path, pq.ParquetFile]:
    with _named(path):
        return path, pq.ParquetFile(path)


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
    lakes: Sequence[Lake],
    table: Table,
    within: Sequence[Partition] | None,
    names: Sequence[str],
) -> LocalPartitions | None:
    """Return partitions to read one by one, or null where this process cannot read them by itself.

    Args:
        within: As ``Lake.partitions`` takes it.
        names: Of the columns; those that a file lacks are null.
    """
    if len(lakes) != 1 or lakes[0].is_catalog:
        return None
    folder = folder_here(lakes[0].session, lakes[0].address(table))
    if folder is None or not folder.is_dir():
        return None
    found = {
        tuple(values.items()): path.parent
        for path, values in listed_here(folder, table.partitions, within).items()
    }
    chosen = in_order(filter(among(within, table), map(dict, found)))
    folders = [found[tuple(item.items())] for item in chosen]
    return LocalPartitions(folders, schema_of_columns(table, names), table.has_revisions)
