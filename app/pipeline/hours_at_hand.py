"""Runs a function of columns for each hour, or day, of tables in folders of this machine.

Spark reads hours as rows, divides them by a shuffle and hands them to Python. A task on this
machine can read the files of an hour itself, as columns, and write what it makes of them: then
nothing is sorted, and no row passes Java. Catalogs, other file systems, several lakes and hours
that are too large for a task are left to Spark.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from app.pipeline.folder_writer import ByTasks, Writer
from app.pipeline.folders import values_of, visible
from app.pipeline.lake import Lake, Partition
from app.pipeline.local_tables import LocalPartitions, local_partitions
from app.pipeline.tables import BY_HOUR, Table

MOST_BYTES: Final = 2**27
"""Of the files of one call, which are compressed; a task has their columns in memory."""

_TASKS_PER_CORE: Final = 4


class Share(NamedTuple):
    """What a call is about.

    Attributes:
        partition: The hour or day.
        number: Which share of it, from 0.
        of: Into how many shares it is divided, as it is large.
    """

    partition: Partition
    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a call reads.

    Attributes:
        columns: Of each table, all of which are by hour.
        bytes_of_share: About so many bytes of files are a share.
        by: What tells partitions apart, ``BY_HOUR`` or ``BY_DAY``.
    """

    columns: Mapping[Table, Sequence[str]]
    bytes_of_share: int
    by: Sequence[str] = BY_HOUR


_Folders = Sequence[Sequence[Path]]
"""Those of a partition, for each table."""


def by_partition(
    lakes: Sequence[Lake],
    reading: Reading,
    hours: Sequence[Partition],
    make: Callable[..., pa.Table],
) -> ByTasks | None:
    """Make rows of each hour or day; null where tasks cannot read them by themselves.

    Args:
        lakes: Where the tables are.
        reading: What is read of them.
        hours: All that are read.
        make: Takes a share and each table's columns of all of its partition, in the order of
            ``reading``, and returns rows of the share alone, as ``ByTasks`` has them.
    """
    session = lakes[0].session
    found = [
        local
        for table, names in reading.columns.items()
        if lakes[0].folder_of_tasks(table)
        if lakes[0].has(table) and (local := local_partitions(lakes, table, hours, names))
    ]
    if len(found) < len(reading.columns):
        return None
    folders: dict[tuple[str, ...], list[list[Path]]] = {}
    for number, local in enumerate(found):
        for folder in local.folders:
            values = tuple(values_of(f"{folder}/", reading.by).values())
            folders.setdefault(values, [[] for _ in found])[number].append(folder)
    work: list[tuple[int, Share, _Folders]] = []
    for values, own in folders.items():
        size = sum(_size(folder) for each in own for folder in each)
        if size > MOST_BYTES:
            return None
        partition, shares = (
            dict(zip(reading.by, values, strict=True)),
            -(-size // reading.bytes_of_share),
        )
        work += [(size, Share(partition, each, shares), own) for each in range(shares)]
    tasks = _divide(work, _TASKS_PER_CORE * session.sparkContext.defaultParallelism)
    return ByTasks(session.range(0, len(tasks), 1, len(tasks) or 1), _task(tasks, found, make))


def _size(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return sum(file.stat().st_size for file in visible(folder))
    # Another run replaces it.
    return 1


def _divide(
    work: Iterable[tuple[int, Share, _Folders]], number: int
) -> list[list[tuple[Share, _Folders]]]:
    """Divide work into tasks of about the same size, the largest first."""
    tasks: list[list[tuple[Share, _Folders]]] = []
    loads: list[tuple[int, int]] = []
    for size, share, folders in sorted(work, key=lambda item: item[0], reverse=True):
        if len(tasks) < number:
            tasks.append([])
            heapq.heappush(loads, (0, len(tasks) - 1))
        load, task = loads[0]
        tasks[task].append((share, folders))
        heapq.heapreplace(loads, (load + size, task))
    return tasks


def _task(
    tasks: Sequence[Sequence[tuple[Share, _Folders]]],
    tables: Sequence[LocalPartitions],
    make: Callable[..., pa.Table],
) -> Writer:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                for share, folders in tasks[number]:
                    both = zip(tables, folders, strict=True)
                    yield from make(share, *(_read(*each) for each in both)).to_batches()

    return run


def _read(table: LocalPartitions, folders: Sequence[Path]) -> pa.Table:
    return pa.concat_tables([table.schema.empty_table(), *map(table.read, folders)])
