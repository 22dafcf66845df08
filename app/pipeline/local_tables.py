"""Tables in folders of this machine, read into columns without Spark.

Spark needs seconds to plan and read hundreds of folders and to hand their rows to Python, pyarrow
tenths of a second for the same files. What is in no folder of this machine, or in several lakes,
is left to Spark.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.errors import InfrastructureError
from app.pipeline.folders import (
    folder_here,
    folders_here,
    of_an_earlier_version,
    values_of,
    visible,
)
from app.pipeline.lake import Lake, arrow_schema
from app.pipeline.partitions import Partition, among, in_order
from app.pipeline.tables import REVISION, Table

_ATTEMPTS: Final = 100


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
        return sum(path.stat().st_size for folder in self.folders for path, _ in self._open(folder))

    def read(self, folder: Path) -> pa.Table:
        """Return the rows of one of them, as its files have them in the order of their names.

        Raises:
            InfrastructureError: A file is broken.
        """
        own = values_of(f"{folder}/", self.schema.names)
        names = [name for name in self.schema.names if name not in own]
        read = []
        for path, file in self._open(folder):
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

    def _open(self, folder: Path) -> list[tuple[Path, pq.ParquetFile]]:
        """Open the files of a folder, again where another run has replaced them meanwhile."""
        for _ in range(_ATTEMPTS):
            try:
                files = visible(folder)
                if self.has_revisions and files:
                    if not files[-1].name.startswith(f"{REVISION}="):
                        raise of_an_earlier_version(f"{folder}")
                    files = visible(files[-1])
                opened = []
                for path in files:
                    with _named(path):
                        opened.append((path, pq.ParquetFile(path)))
            except FileNotFoundError:
                continue
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
        tuple(values.items()): path
        for path, values in folders_here(folder, table.partitions, within).items()
    }
    listed = in_order(map(dict, found))
    chosen = listed if within is None else among(listed, within, table)
    schema = arrow_schema(table.ddl)
    return LocalPartitions(
        [found[tuple(item.items())] for item in chosen],
        pa.schema([schema.field(name) for name in names]),
        table.has_revisions,
    )
