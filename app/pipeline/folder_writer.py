"""Writes tables into folders of this machine: Spark's tasks write the files, pyarrow encodes them.

Spark's own writer takes six times as long for minutes of rates, most of it for single values and
for the files of hours. Where tasks run on this machine they can write to it themselves. A write
replaces whole partitions, as Spark's does: its files are made in a folder that no reader looks at,
and take the place of the former ones once all of them are there.
"""

import ctypes
import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, StructType

from app.pipeline.errors import InfrastructureError
from app.pipeline.folders import folder_here, values_of
from app.pipeline.partitions import Partition, among
from app.pipeline.spark import is_local
from app.pipeline.tables import REVISION, Table

_ROWS_OF_GROUP: Final = 1_000_000
_ESCAPED: Final = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
"""Source: ``ExternalCatalogUtils.escapePathName`` of Spark."""

_CURRENT_FOLDER: Final = -100
_EXCHANGE: Final = 2
"""Source: ``AT_FDCWD`` and ``RENAME_EXCHANGE`` of renameat2(2)."""

_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_WRITTEN: Final = ("folder", "rows")
WRITTEN: Final = "folder string, rows bigint"

Item = TypeVar("Item")
Folder = str
"""Of a partition, below that of its table."""


Writer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task of Arrow does, as ``mapInArrow`` takes it."""


def folder_of_tasks(session: SparkSession, uri: str) -> Path | None:
    """Return the folder of a URI that all tasks reach as this process does; null elsewhere."""
    folder = folder_here(session, uri)
    return folder if folder and is_local(session) else None


class Staging:
    """Files that tasks write, and that take the place of others together.

    Attributes:
        write: What a task does: it writes the files of rows of the table's columns, in its order,
            those of a partition one after the other, and yields ``WRITTEN``. It may be sent.
    """

    def __init__(self, folder: Path, schema: StructType, table: Table) -> None:
        """Name a folder that no reader looks at."""
        self.folder = folder
        self._table = table
        self._staged = folder / f"_{uuid4().hex}"
        self.write = _writing(schema, table, self._staged)

    def __enter__(self) -> Self:
        """Make the folder."""
        above = self.folder
        self._new = [above] if not above.exists() else []
        while not above.parent.exists():
            above = above.parent
            self._new.append(above)
        with _written(self._staged):
            self._staged.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what has not been put, and folders above it that were made for nothing."""
        shutil.rmtree(self._staged, ignore_errors=True)
        with suppress(OSError):
            for above in self._new:
                above.rmdir()

    def put(
        self, written: pa.Table, wanted: Sequence[Partition] | None = None, revision: str = ""
    ) -> dict[tuple[str, ...], int]:
        """Replace partitions by what the tasks wrote, and return how many rows each has.

        Args:
            written: What the tasks yielded.
            wanted: Put these alone; null are all.
            revision: Write it of them, and let other revisions stay.
        """
        # A table without rows is one, too.
        self._new = []
        rows_of: dict[str, int] = {}
        for folder, rows in zip(*(written[name].to_pylist() for name in _WRITTEN), strict=True):
            rows_of[folder] = rows_of.get(folder, 0) + rows
        put: dict[tuple[str, ...], int] = {}
        is_wanted = among(wanted, self._table)
        for folder in sorted(rows_of):
            partition = values_of(f"{folder}/", self._table.partitions)
            if is_wanted(partition):
                own = self.folder / folder / (f"{REVISION}={revision}" if revision else "")
                with _written(own):
                    _replace(own, self._staged / folder, self._staged)
                put[(*partition.values(),)] = rows_of[folder]
        return put


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Say in a sentence why a file or folder cannot be written.

    Raises:
        InfrastructureError: It cannot.
    """
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        message = f"{path} cannot be written: {why}"
        raise InfrastructureError(message) from error


@dataclass(frozen=True, slots=True)
class ByTasks:
    """Rows that tasks make of others.

    So the task that makes columns can write them, without a way through Java and back.

    Attributes:
        of: What each task gets.
        make: Makes the columns of a table, in its order; rows as ``write_here`` takes them.
    """

    of: DataFrame
    make: Writer

    def rows(self, ddl: str) -> DataFrame:
        """Return them by way of Java, for whoever else writes them."""
        return self.of.mapInArrow(self.make, ddl)


def in_tasks(
    session: SparkSession,
    items: Sequence[Item],
    act: Callable[[Item], Iterable[pa.RecordBatch]],
) -> ByTasks:
    """Return what a function makes of each item, in a task of its own."""
    numbers = session.range(0, len(items), 1, max(len(items), 1))
    return ByTasks(numbers, partial(_act, items=items, act=act))


def _act(
    batches: Iterable[pa.RecordBatch],
    items: Sequence[Item],
    act: Callable[[Item], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from act(items[number])


def write_here(
    rows: DataFrame | ByTasks | pa.Table,
    schema: StructType,
    table: Table,
    folder: Path,
    revision: str,
) -> dict[tuple[str, ...], int]:
    """Replace the partitions that the rows are of, and return how many rows each has now.

    Args:
        rows: The columns of the table, in its order; each task has the rows of a partition one
            after the other, in the order of its file. This process writes those that it has.
        revision: Of a table that has them; its other revisions stay.
    """
    with Staging(folder, schema, table) as staging:
        write = staging.write
        if isinstance(rows, pa.Table):
            written = pa.Table.from_batches(write(rows.to_batches()))
        else:
            of, make = (rows.of, rows.make) if isinstance(rows, ByTasks) else (rows, iter)
            written = of.mapInArrow(lambda batches: write(make(batches)), WRITTEN).toArrow()
        return staging.put(written, revision=revision)


def _replace(own: Path, new: Path, staged: Path) -> None:
    """Let a folder take the place of another one, which another run may replace meanwhile.

    Readers find either of them, except on file systems that cannot exchange two folders at once.
    """
    own.parent.mkdir(parents=True, exist_ok=True)
    while not _exchange(own, new):
        with suppress(FileNotFoundError):
            own.rename(staged / f"former-{uuid4().hex}")
        try:
            new.rename(own)
        except OSError:
            if not own.exists():
                raise
            continue
        return


def _exchange(folder: Path, other: Path) -> bool:
    """Exchange two folders at once, as Linux can; tell whether both are there and it did."""
    rename: Any = getattr(ctypes.CDLL(None), "renameat2", lambda *_: -1)
    paths = (_CURRENT_FOLDER, bytes(folder), _CURRENT_FOLDER, bytes(other))
    return bool(rename(*paths, _EXCHANGE) == 0)


def _writing(schema: StructType, table: Table, staged: Path) -> Writer:
    own = to_arrow_schema(schema)
    partitions = table.partitions
    stored = pa.schema([field for field in own if field.name not in partitions])
    # A dictionary of values that mostly differ costs time and space.
    doubles = {field.name for field in schema if isinstance(field.dataType, DoubleType)}
    repeated = [field.name for field in stored if field.name not in doubles]

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written: list[tuple[Folder, int]] = []
        for folder, rows in _runs(batches, partitions):
            name = f"part-{len(written):05}-{uuid4()}.zstd.parquet"
            chosen = rows.select(stored.names).cast(stored)
            with _written(staged / folder / name):
                (staged / folder).mkdir(parents=True, exist_ok=True)
                pq.write_table(
                    chosen,
                    staged / folder / name,
                    compression="zstd",
                    use_dictionary=repeated,
                    row_group_size=_ROWS_OF_GROUP,
                )
            written.append((folder, len(rows)))
        folders, rows_of = zip(*written, strict=True) if written else ((), ())
        columns = [pa.array(folders, pa.string()), pa.array(rows_of, pa.int64())]
        yield pa.record_batch(columns, _WRITTEN)

    return write


def _runs(
    batches: Iterable[pa.RecordBatch], partitions: Sequence[str]
) -> Iterator[tuple[Folder, pa.Table]]:
    """Yield the rows that follow each other and are of one partition, with its folder."""
    current, collected = "", list[pa.RecordBatch]()
    for batch in batches:
        if not len(batch):
            continue
        columns = [batch.column(name).dictionary_encode() for name in partitions]
        changes = np.zeros(len(batch), bool)
        for column in columns:
            changes[1:] |= np.diff(column.indices.to_numpy()) != 0
        begins = [0, *np.flatnonzero(changes).tolist(), len(batch)]
        for begin, end in itertools.pairwise(begins):
            values = [column[begin].as_py() for column in columns]
            folder = "/".join(map(_level, partitions, values))
            if folder != current and collected:
                yield current, pa.Table.from_batches(collected)
                collected = []
            current = folder
            collected.append(batch.slice(begin, end - begin))
    if collected:
        yield current, pa.Table.from_batches(collected)


def _level(name: str, value: object) -> str:
    """Return a level of a folder as Spark names it."""
    text = "" if value is None else f"{value}"
    escaped = _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
    return f"{name}={escaped or _NO_VALUE}"
