"""Runs a function of columns for each hour, or day, of tables.

The function is the same everywhere; only how columns get to it differs. Tasks on this machine read
the files of a partition themselves: nothing is sorted, and no row passes Java. Elsewhere, of a
catalog, another file system or several lakes, Spark reads the rows, and shuffles those of a
partition to a task, packed as columns.
"""

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.folder_writer import ByTasks, Writer, in_tasks
from app.pipeline.folders import values_of
from app.pipeline.lake import Lake, read_first, schema_of_columns
from app.pipeline.local_tables import LocalPartitions, local_partitions
from app.pipeline.partitions import Partition
from app.pipeline.tables import BY_HOUR, Table

_TASKS_PER_CORE: Final = 4
_PACKED: Final = "partition string, number int, columns binary"
_BYTES_TO_PACK: Final = 2**27
"""A task packs what it has read once it is so much."""


class Columns(NamedTuple):
    """Columns of a table.

    Attributes:
        table: By hour or by day.
        names: Those that a file lacks are null.
        divided_by: Whole numbers by which the rows of a large partition are divided into shares;
            without it each share has all rows.
        keys: What identifies a row of a partition, where lakes overlap; default the table's order.
    """

    table: Table
    names: Sequence[str]
    divided_by: str | None = None
    keys: Sequence[str] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return schema_of_columns(self.table, self.names)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a call reads.

    Attributes:
        bytes_of_share: About so many bytes of compressed columns are a share.
        by: The columns that tell partitions apart, ``BY_HOUR`` or ``BY_DAY``.
        together: Whether a call may get several partitions, which their columns tell apart, and
            each as a whole: about so many bytes of them where tasks read them themselves.
    """

    columns: Sequence[Columns]
    bytes_of_share: int
    by: Sequence[str] = BY_HOUR
    together: bool = False


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


Make = Callable[..., pa.Table]
"""Takes a share and its columns, table by table, and returns rows as ``ByTasks`` has them."""


def by_partition(
    lakes: Sequence[Lake], reading: Reading, partitions: Sequence[Partition], make: Make
) -> ByTasks:
    """Make rows of each hour or day.

    Args:
        lakes: Where the tables are; of those that overlap the first counts.
    """
    found = [
        local
        for columns in reading.columns
        if lakes[0].folder_of_tasks(columns.table)
        if (local := local_partitions(lakes, columns.table, partitions, columns.names))
    ]
    work = _Work(reading, [columns.schema for columns in reading.columns], make)
    if len(found) < len(reading.columns):
        return ByTasks(_pack_by_spark(lakes, reading, partitions), work.unpack)
    folders: dict[tuple[str, ...], list[list[Path]]] = {}
    for number, local in enumerate(found):
        for folder in local.folders:
            values = tuple(values_of(f"{folder}/", reading.by).values())
            folders.setdefault(values, [[] for _ in found])[number].append(folder)
    shares: list[tuple[int, Share, _Folders]] = []
    for values, own in folders.items():
        both = zip(found, own, strict=True)
        size = sum(local.size_of(folder) for local, each in both for folder in each)
        partition = dict(zip(reading.by, values, strict=True))
        # Another run may replace a folder just now.
        shares += [(size or 1, share, own) for share in _shares(partition, size, reading)]
    session = lakes[0].session
    cores = session.sparkContext.defaultParallelism
    if reading.together:
        shares = _together(shares, reading.bytes_of_share, cores)
    tasks = _divide(shares, _TASKS_PER_CORE * cores)
    return in_tasks(session, tasks, partial(work.read, tables=found))


_Folders = Sequence[Sequence[Path]]
"""Those of a partition, for each table."""


def _shares(partition: Partition, size: int, reading: Reading) -> list[Share]:
    number = 1 if reading.together else max(1, -(-size // reading.bytes_of_share))
    return [Share(partition, each, number) for each in range(number)]


def _together(
    shares: Sequence[tuple[int, Share, _Folders]], most: int, cores: int
) -> list[tuple[int, Share, _Folders]]:
    """Join partitions that follow each other, to shares of about so many bytes for all cores."""
    total, before = sum(size for size, _, _ in shares), 0
    number = max(cores, -(-total // most))
    joined: dict[int, tuple[int, Share, _Folders]] = {}
    for size, share, folders in shares:
        group = before * number // total
        former = joined.get(group, (0, share, [() for _ in folders]))
        both = [[*own, *more] for own, more in zip(former[2], folders, strict=True)]
        joined[group] = (former[0] + size, former[1], both)
        before += size
    return [*joined.values()]


def _divide(
    shares: Iterable[tuple[int, Share, _Folders]], number: int
) -> list[list[tuple[Share, _Folders]]]:
    """Divide work into tasks of about the same size, the largest first."""
    tasks: list[list[tuple[Share, _Folders]]] = []
    loads: list[tuple[int, int]] = []
    for size, share, folders in sorted(shares, key=lambda item: item[0], reverse=True):
        if len(tasks) < number:
            tasks.append([])
            heapq.heappush(loads, (0, len(tasks) - 1))
        load, task = loads[0]
        tasks[task].append((share, folders))
        heapq.heapreplace(loads, (load + size, task))
    return tasks


@dataclass(frozen=True, slots=True)
class _Work:
    """What tasks do."""

    reading: Reading
    schemas: Sequence[pa.Schema]
    make: Make

    def read(
        self,
        shares: Sequence[tuple[Share, _Folders]],
        tables: Sequence[LocalPartitions],
    ) -> Iterator[pa.RecordBatch]:
        """Read the files of a task's shares."""
        for share, folders in shares:
            both = zip(tables, folders, strict=True)
            yield from self._made(share, [map(table.read, own) for table, own in both])

    def unpack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read what other tasks have packed of a task's partitions."""
        found: dict[str, list[list[pa.Scalar]]] = {}
        for batch in batches:
            for partition, number, columns in zip(*batch.columns, strict=True):
                tables = found.setdefault(partition.as_py(), [[] for _ in self.schemas])
                tables[number.as_py()].append(columns)
        for name, tables in found.items():
            partition = dict(zip(self.reading.by, json.loads(name), strict=True))
            size = sum(columns.as_buffer().size for each in tables for columns in each)
            for share in _shares(partition, size, self.reading):
                yield from self._made(share, [map(_unpacked, each) for each in tables])

    def _made(self, share: Share, read: Sequence[Iterable[pa.Table]]) -> Iterator[pa.RecordBatch]:
        columns = map(partial(_of_share, share), self.reading.columns, self.schemas, read)
        yield from self.make(share, *columns).to_batches()


def _of_share(
    share: Share, columns: Columns, schema: pa.Schema, tables: Iterable[pa.Table]
) -> pa.Table:
    """Return a share's rows, of which never all are in memory where they are divided."""

    def choose(table: pa.Table) -> pa.Table:
        if not columns.divided_by or share.of == 1:
            return table
        remainder = table[columns.divided_by].to_numpy() % share.of
        return table.filter(pa.array(remainder == share.number))

    chosen = (choose(table).cast(schema) for table in tables)
    return pa.concat_tables([schema.empty_table(), *chosen])


def _unpacked(columns: pa.Scalar) -> pa.Table:
    with pa.ipc.open_stream(columns.as_buffer()) as stream:
        return stream.read_all()


def _pack_by_spark(
    lakes: Sequence[Lake], reading: Reading, partitions: Sequence[Partition]
) -> DataFrame:
    packed: list[DataFrame] = []
    texts = ", ".join(f"cast({name} as string)" for name in reading.by)
    for number, columns in enumerate(reading.columns):
        rows = read_first(lakes, columns.table, partitions, columns.keys)
        named = rows.select(sf.expr(f"to_json(array({texts}))").alias("partition"), *columns.names)
        packed.append(named.mapInArrow(partial(_pack, number=number), _PACKED))
    return reduce(DataFrame.unionAll, packed).repartition("partition")


def _pack(batches: Iterable[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
    """Pack the rows of each partition, which is the first column."""
    collected, size = list[pa.RecordBatch](), 0
    for batch in batches:
        collected.append(batch)
        size += batch.nbytes
        if size > _BYTES_TO_PACK:
            yield from _packed(collected, number)
            collected, size = [], 0
    if collected:
        yield from _packed(collected, number)


def _packed(batches: Sequence[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches)
    partition = rows["partition"].combine_chunks().dictionary_encode()
    order = np.argsort(partition.indices.to_numpy(), kind="stable")
    begins = np.searchsorted(
        partition.indices.to_numpy()[order], np.arange(len(partition.dictionary) + 1)
    )
    in_order = rows.drop_columns(["partition"]).take(pa.array(order))
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for name, (begin, end) in zip(partition.dictionary, pairwise(begins.tolist()), strict=True):
        sink = pa.BufferOutputStream()
        own = in_order.slice(begin, end - begin)
        with pa.ipc.new_stream(sink, own.schema, options=options) as stream:
            stream.write_table(own)
        columns = [[name.as_py()], pa.array([number], pa.int32()), [sink.getvalue().to_pybytes()]]
        yield pa.record_batch(columns, ["partition", "number", "columns"])


def of_all_rows(function: Callable[[pa.Table], pa.Table]) -> Writer:
    """Return a task of Arrow that gives a function all of its rows, if it has any."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if found := [batch for batch in batches if len(batch)]:
            yield from function(pa.Table.from_batches(found)).to_batches()

    return run


def columns_of(
    lakes: Sequence[Lake],
    columns: Columns,
    partitions: Sequence[Partition] | None = None,
) -> pa.Table:
    """Return columns of partitions to this process.

    Args:
        lakes: Where the table is; one may lack it.
        partitions: Null is everywhere.

    Raises:
        InfrastructureError: A file is broken, or Spark fails.
    """
    table, names, _, keys = columns
    here = local_partitions(lakes, table, partitions, names)
    if here is not None:
        return here.read_all()
    everywhere: Mapping[str, str] = {}
    within = [everywhere] if partitions is None else partitions
    return read_first(lakes, table, within, keys).select(*names).toArrow().cast(columns.schema)
