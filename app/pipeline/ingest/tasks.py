"""The tasks of an ingest: each judges and sums up the points of its hours, all in one reading."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from app.pipeline.folder_writer import WRITTEN, Staging, Writer, folder_of_tasks
from app.pipeline.ingest.checks import Tally
from app.pipeline.ingest.files_at_hand import Read, Share, read_share, shares_of
from app.pipeline.ingest.hours import Summed, sum_hours
from app.pipeline.ingest.inputs import Inputs
from app.pipeline.ingest.minutes import ATTRIBUTES, HOUR_US, Provenance
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.read import read_points, unreadable_points
from app.pipeline.lake import Lake, schema_of
from app.pipeline.tables import RATE_MINUTE, SERIES

TABLES: Final = (SERIES, RATE_MINUTE)

_SURPLUS: Final = "cluster_id string, ts bigint, file int, line bigint, raw string, reason string"
_STRUCTS: Final = {
    "counted": "kind string, name string, n bigint",
    "reported": "cluster_id string, broker_id int, hour_number int, rows bigint, "
    "with_rate bigint, ups bigint, minutes bigint, first bigint, last bigint",
    "surplus": _SURPLUS,
    "written": f"name string, {WRITTEN}",
    **{table.name: table.ddl for table in TABLES},
}
_DDL: Final = ", ".join(f"{name} struct<{ddl}>" for name, ddl in _STRUCTS.items())
_DETAILS: Final = ("surplus", *(table.name for table in TABLES))


class Outcome(NamedTuple):
    """What the tasks did.

    Attributes:
        counted: What they counted.
        found: What they return, persisted: structs of which each row has one.
        staged: Where the tasks wrote their files, by the names of tables; empty where ``found`` has
            the rows.
        written: The rows of each partition that is staged, by the names of tables.
        rows_of_file: How many rows were read, by the number of the file.
        broken: Why files cannot be read, by their numbers, as far as the tasks know it.
    """

    counted: Tally
    found: DataFrame
    staged: Mapping[str, Staging]
    written: Mapping[str, Mapping[str, int]]
    rows_of_file: Mapping[int, int]
    broken: Mapping[int, str]

    def rows(self, name: str) -> DataFrame:
        """Return the rows of a table, or ``surplus``."""
        return self.found.where(f"`{name}` is not null").select(f"`{name}`.*")


def run_tasks(
    inputs: Inputs, rules: Rules, provenance: Provenance, out: Lake, opened: ExitStack
) -> Outcome:
    """Judge and sum up all points of the inputs, and write what is staged.

    Args:
        inputs: What is read.
        rules: How points are judged.
        provenance: Of the run.
        out: Where the tables will be; its session runs the tasks.
        opened: Ends what is staged and persisted.

    Raises:
        UsageError: Two series have the same id.
        InfrastructureError: A file of a period cannot be read.
    """
    session = out.session
    staged = {
        table.name: opened.enter_context(Staging(folder, schema_of(table), table))
        for table in TABLES
        if (folder := None if out.is_catalog else folder_of_tasks(session, out.address(table)))
    }
    schema = to_arrow_schema(cast("StructType", StructType.fromDDL(_DDL)))
    writers = {name: each.write for name, each in staged.items()}
    task = _Task(inputs.firsts, provenance, writers, schema)
    shares = shares_of(session, inputs, rules)
    if shares is None:
        points = read_points(session, inputs, rules)
        by_hour = points.repartition(sf.expr(f"ts div {HOUR_US}"))
        found = by_hour.mapInArrow(task.sum_points, _DDL)
    else:
        numbers = session.range(0, len(shares), 1, max(len(shares), 1))
        read = partial(read_share, groups=inputs.groups, rules=rules)
        found = numbers.mapInArrow(partial(task.sum_shares, shares=shares, read=read), _DDL)
        if inputs.unreadable:
            unread = unreadable_points(session, inputs.unreadable).coalesce(1)
            found = found.unionByName(unread.mapInArrow(task.sum_points, _DDL))
    found = found.persist(StorageLevel.DISK_ONLY)
    opened.callback(found.unpersist)
    nothing = " and ".join(f"`{name}` is null" for name in _DETAILS)
    return _outcome(found, found.where(nothing).collect(), staged)


Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class _Task:
    """What tasks do with points.

    Attributes:
        firsts: The number of the first file of each input.
        provenance: Of the run.
        writers: Write the files of tables, by their names; the rows of others are returned.
        schema: Of what is returned.
    """

    firsts: Sequence[int]
    provenance: Provenance
    writers: Mapping[str, Writer]
    schema: pa.Schema

    def sum_points(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Sum up what Spark has read and divided by hour."""
        if collected := list(batches):
            yield from self._sum(pa.Table.from_batches(collected))

    def sum_shares(
        self, batches: Batches, shares: Sequence[Share], read: Callable[[Share], Read]
    ) -> Iterator[pa.RecordBatch]:
        """Read shares by their numbers, and sum them up."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                points, broken = read(shares[number])
                yield self._returned("counted", _table(broken_file=broken))
                if points:
                    yield from self._sum(pa.concat_tables(points))

    def _sum(self, points: pa.Table) -> Iterator[pa.RecordBatch]:
        if not len(points):
            return
        summed = sum_hours(points, self.firsts, self.provenance)
        yield self._returned("counted", _counts(summed))
        for name, table in summed.tables():
            if name not in self.writers:
                yield self._returned(name, table)
                continue
            for written in self.writers[name](table.to_batches()):
                named = pa.Table.from_batches([written])
                names = pa.array([name] * len(named), pa.string())
                yield self._returned("written", named.add_column(0, "name", names))

    def _returned(self, name: str, rows: pa.Table) -> pa.RecordBatch:
        """Return rows as one of the structs."""
        kind = self.schema.field(name).type
        columns = [rows[item.name].cast(item.type).combine_chunks() for item in kind]
        struct = pa.StructArray.from_arrays(columns, fields=list(kind))
        arrays = [
            struct if field.name == name else pa.nulls(len(rows), field.type)
            for field in self.schema
        ]
        return pa.record_batch(arrays, schema=self.schema)


def _counts(summed: Summed) -> pa.Table:
    return _table(
        refused=summed.refused,
        left_out={"": summed.left_out},
        used=summed.used,
        failed={"": summed.failed},
        cluster=dict.fromkeys(summed.clusters, 1),
        file=summed.files,
    )


def _table(**counts: Mapping[Any, Any]) -> pa.Table:
    """Return what is counted of each kind, by name; of a broken file its reason is the name."""
    rows = [
        (kind, *((f"{name}", n) if isinstance(n, int) else (f"{n}", name)))
        for kind, found in counts.items()
        for name, n in found.items()
    ]
    names = ("kind", "name", "n")
    kinds = (pa.string(), pa.string(), pa.int64())
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            name: pa.array(column, kind)
            for name, column, kind in zip(names, columns, kinds, strict=True)
        }
    )


def _outcome(found: DataFrame, rows: Sequence[Row], staged: Mapping[str, Staging]) -> Outcome:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    written: dict[str, Counter[str]] = {name: Counter() for name in staged}
    broken = {}
    for row in rows:
        if row.written is not None:
            written[row.written.name][row.written.folder] += row.written.rows
        elif row.counted is not None and row.counted.kind == "broken_file":
            broken[row.counted.n] = row.counted.name
        elif row.counted is not None:
            counts[row.counted.kind][row.counted.name] += row.counted.n
    counted = Tally.of([row.reported for row in rows if row.reported is not None])
    counted.refused = dict(sorted(counts["refused"].items()))
    counted.left_out = counts["left_out"][""]
    counted.used = {name: counts["used"][name] for name in ATTRIBUTES if counts["used"][name]}
    counted.failed = counts["failed"][""]
    counted.named = sorted(counts["cluster"])
    of_file = {int(name): n for name, n in counts["file"].items()}
    return Outcome(counted, found, staged, written, of_file, broken)
