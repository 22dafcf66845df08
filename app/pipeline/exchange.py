"""Rows from task to task in whole columns: Spark moves a few blobs instead of many rows.

A blob is a stream of Arrow with the rows that one task has for another. Spark schedules the tasks,
moves and repeats them as ever, but takes no row apart.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.sources.codes import Coded, Integers, begins, in_one_piece
from app.pipeline.spark import cores

BLOB_DDL: Final = "part int, blob binary"
"""``part`` is the number of the task that the rows are for."""

ROWS_OF_TASK: Final = 1_500_000
"""About so many rows are at hand in one task."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Hashes = npt.NDArray[np.uint64]

_BLOB: Final = pa.schema([("part", pa.int32()), ("blob", pa.binary())])
_TASKS_PER_CORE: Final = 4
_ROWS_OF_BLOB: Final = 100_000
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_RADIX: Final = 2**16


def for_each(session: SparkSession, count: int, task: Task, ddl: str) -> DataFrame:
    """Return what tasks tell that are given the numbers from 0 on, as ``id``.

    A task costs about a tenth of a second whatever it does, so each gets several numbers where
    there are many; what it tells of one must not depend on the others.
    """
    tasks = min(count, _TASKS_PER_CORE * cores(session))
    return session.range(0, count, 1, max(1, tasks)).mapInArrow(task, ddl)


def numbers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers that ``for_each`` gives a task."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def exchanged(blobs: DataFrame, parts: int) -> DataFrame:
    """Bring the blobs of each part to the task of that number."""
    return blobs.repartitionById(parts, "part")


def blobs_of(rows: pa.Table, parts: Integers) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each part as blobs; texts had better be encoded by dictionaries."""
    if not rows.num_rows:
        return
    small = parts.astype(np.uint16 if int(parts.max()) < _RADIX else np.int64)
    order = np.argsort(small, kind="stable")
    ordered = parts[order]
    starts = np.flatnonzero(begins(ordered))
    if len(starts) > 1:
        rows = rows.take(pa.array(order))
    for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        for first in range(begin, end, _ROWS_OF_BLOB):
            some = rows.slice(first, min(_ROWS_OF_BLOB, end - first))
            part = pa.array([int(ordered[begin])], pa.int32())
            yield pa.record_batch([part, _cell(_packed(some))], schema=_BLOB)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Sequence[pa.Table]]]:
    """Yield each part that a task is given, with its tables in no order."""
    parts: Mapping[int, list[pa.Table]] = defaultdict(list)
    for batch in batches:
        for part, blob in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            parts[part].append(pa.ipc.open_stream(blob.as_buffer()).read_all())
    yield from sorted(parts.items())


def _cell(content: pa.Buffer) -> pa.Array:
    """Return a column of one blob, which is not copied."""
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])


def _packed(rows: pa.Table) -> pa.Buffer:
    columns = [_without_unused(in_one_piece(column)) for column in rows.columns]
    batch = pa.record_batch(columns, names=rows.column_names)
    # Told its size first, a buffer need not grow by copying itself.
    counted = pa.MockOutputStream()
    _write(batch, counted)
    content = pa.allocate_buffer(counted.size())
    _write(batch, pa.FixedSizeBufferWriter(content))
    return content


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)


def _without_unused(column: pa.Array) -> pa.Array:
    """Drop the values of a dictionary that no row has; rows with a dictionary are never null."""
    if not pa.types.is_dictionary(column.type):
        return column
    codes = column.indices.to_numpy(zero_copy_only=False)
    used = np.zeros(len(column.dictionary), np.bool_)
    used[codes] = True
    places = (np.cumsum(used) - 1).astype(np.int32)
    values = column.dictionary.filter(pa.array(used))
    return pa.DictionaryArray.from_arrays(pa.array(places[codes]), values)


@dataclass(frozen=True)
class Shares:
    """Which part gets which rows; a part is a task, and a file for each day that it has.

    Attributes:
        places: The first part of a cluster's day, and how many it has; small days share one.
        parts: How many there are; what has no place goes to any of them.
    """

    places: Mapping[tuple[str, int], tuple[int, int]]
    parts: int

    @classmethod
    def of(cls, rows: Mapping[tuple[str, int], int]) -> Self:
        """Divide rows that were counted by cluster and day since the epoch."""
        places: dict[tuple[str, int], tuple[int, int]] = {}
        parts, room = 0, 0
        for place, n in sorted(rows.items()):
            count = max(1, ceil(n / ROWS_OF_TASK))
            if n > room or count > 1:
                parts += count
                room = ROWS_OF_TASK if count == 1 else 0
            places[place] = (parts - count, count)
            room -= n
        return cls(places, max(1, parts))

    @classmethod
    def anywhere(cls, rows: int) -> Self:
        """Divide rows whose days nobody has counted."""
        return cls({}, max(1, ceil(rows / ROWS_OF_TASK)))

    @property
    def holds_days(self) -> bool:
        """Whether each day has one part alone."""
        return all(count == 1 for _, count in self.places.values())

    def parts_of(
        self, places: Sequence[tuple[str, int]], codes: Integers, hashes: Hashes
    ) -> Integers:
        """Return the part of each row.

        Args:
            places: Clusters and days.
            codes: Of each row, which of them it is of.
            hashes: Equal for rows that belong together.
        """
        known = [self.places.get(place, (0, self.parts)) for place in places]
        first, count = (np.array(item, np.int64) for item in zip(*known, strict=True))
        share = hashes % count.astype(np.uint64)[codes]
        parts: Integers = first[codes] + share.astype(np.int64)
        return parts


def hashed(columns: Sequence[Coded | Integers]) -> Hashes:
    """Return a hash of each row that is the same on any machine."""
    total = np.zeros(len(_codes(columns[0])), np.uint64)
    for column in columns:
        total = (total ^ _hashed(column)) * _FACTOR
        total ^= total >> _HALF
    return total


def _hashed(column: Coded | Integers) -> Hashes:
    if not isinstance(column, Coded):
        return column.astype(np.uint64)
    values = column.values.to_pylist()
    known = np.array([crc32(str(value).encode()) for value in values], np.uint64)
    hashes: Hashes = known[column.codes] if len(values) else np.zeros(0, np.uint64)
    return hashes


def _codes(column: Any) -> Integers:
    codes: Integers = column.codes if isinstance(column, Coded) else column
    return codes
