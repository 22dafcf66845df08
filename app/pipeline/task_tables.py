"""Several tables that tasks make in one pass, and what they report beside them.

Where tasks reach the folder of a table they write its files; the rows of others come back through
Java, and Spark writes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from app.pipeline.folder_writer import WRITTEN, Staging, Writer
from app.pipeline.lake import Lake, arrow_schema, schema_of
from app.pipeline.partitions import Partition, is_within, without
from app.pipeline.tables import Table

_WRITTEN: Final = "written"


@dataclass(frozen=True, slots=True)
class Packing:
    """What tasks do with the rows that they have made.

    Attributes:
        writers: Write the files of tables, by their names.
        schema: Of what is returned: structs, of which each row has one.
    """

    writers: Mapping[str, Writer]
    schema: pa.Schema

    def pack(self, tables: Iterable[tuple[str, pa.Table]]) -> Iterator[pa.RecordBatch]:
        """Write the rows of tables, by their names, or return them."""
        for name, rows in tables:
            if name not in self.writers:
                yield self._packed(name, rows)
                continue
            for written in self.writers[name](rows.to_batches()):
                named = pa.Table.from_batches([written])
                names = pa.array([name] * len(named), pa.string())
                yield self._packed(_WRITTEN, named.add_column(0, "name", names))

    def _packed(self, name: str, rows: pa.Table) -> pa.RecordBatch:
        kind = self.schema.field(name).type
        columns = [rows[item.name].cast(item.type).combine_chunks() for item in kind]
        struct = pa.StructArray.from_arrays(columns, fields=list(kind))
        arrays = [
            struct if field.name == name else pa.nulls(len(rows), field.type)
            for field in self.schema
        ]
        return pa.record_batch(arrays, schema=self.schema)


class TaskTables:
    """The tables and reports of a pass.

    Attributes:
        ddl: Of what the tasks return.
        packing: What they return it by; it may be sent.
        found: What they returned, once they have run.
        reports: What they reported, by its name.
    """

    def __init__(
        self,
        out: Lake,
        tables: Sequence[Table],
        reports: Mapping[str, str],
        opened: ExitStack,
        details: Mapping[str, str] | None = None,
    ) -> None:
        """Stage what tasks can write.

        Args:
            reports: The columns of what they report.
            opened: Ends what is staged and persisted.
            details: The columns of what they return beside, which may be much, by its name.
        """
        self._out, self._opened = out, opened
        self._staged = {
            table.name: opened.enter_context(Staging(folder, schema_of(table), table))
            for table in tables
            if (folder := out.folder_of_tasks(table))
        }
        self._returned = [table for table in tables if table.name not in self._staged]
        self._reported = {**reports, _WRITTEN: f"name string, {WRITTEN}"}
        self._details = {**(details or {}), **{table.name: table.ddl for table in self._returned}}
        structs = {**self._reported, **self._details}
        self.ddl = ", ".join(f"`{name}` struct<{ddl}>" for name, ddl in structs.items())
        schema = arrow_schema(self.ddl)
        self.packing = Packing({name: each.write for name, each in self._staged.items()}, schema)
        self.reports: dict[str, pa.Table] = {}

    def run(self, found: DataFrame) -> None:
        """Run the tasks once.

        Args:
            found: What ``packing`` returns in each of them.
        """
        if self._details:
            found = found.persist(StorageLevel.DISK_ONLY)
            self._opened.callback(found.unpersist)
        self.found = found
        is_reported = " or ".join(f"`{name}` is not null" for name in self._reported)
        rows = found.where(is_reported).select(*self._reported).toArrow()
        for name in self._reported:
            column = rows[name].combine_chunks()
            self.reports[name] = pa.Table.from_struct_array(column.filter(column.is_valid()))

    def rows(self, name: str) -> DataFrame:
        """Return details, or the rows of a table that no task wrote."""
        return self.found.where(f"`{name}` is not null").select(f"`{name}`.*")

    def put(self, table: Table, replaces: Sequence[Partition]) -> int:
        """Replace partitions of a table by what the tasks made, and return how many rows that is.

        Args:
            replaces: All partitions that the run is about: without rows they are empty afterwards,
                and rows of others are not put.
        """
        if table in self._returned:
            rows = self.rows(table.name).where(is_within(replaces, table.partitions))
            return self._out.write(rows, table, replaces, is_sorted=True)
        written = self.reports[_WRITTEN]
        own = written.filter(pc.equal(written["name"], table.name))
        put = self._staged[table.name].put(own, replaces)
        filled = [dict(zip(table.partitions, values, strict=True)) for values in put]
        self._out.empty(table, without(replaces, filled))
        return sum(put.values())
