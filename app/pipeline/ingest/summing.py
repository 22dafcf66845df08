"""What the tasks of an ingest do with points, and how they return it.

Workers have numpy and pyarrow, and not what the driver needs beside them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from app.pipeline.folder_writer import Writer
from app.pipeline.ingest.hours import Summed, sum_hours
from app.pipeline.ingest.minutes import Provenance

Batches = Iterable[pa.RecordBatch]
Read = tuple[list[pa.Table], Mapping[int, str]]
"""Points, as ``judge`` returns them, and why files cannot be read, by their numbers."""

Share = TypeVar("Share")


@dataclass(frozen=True)
class Task:
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
