"""What the tables of a folder say about themselves; nothing is read but what a check needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.dataset import dataset, partitioning

from app.pipeline.arrow_storage import arrow_schema
from app.pipeline.doctor.checks import Check, fail, ok, warn
from app.pipeline.folders import has_table
from app.pipeline.tables import TABLES, Table

_TIMES: Final = ("ts", "start", "valid_from", "taken_at", "last_seen")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The folders of ``--input``, and the cluster that they are looked at for; null is all."""

    folders: Sequence[Path]
    cluster: str | None = None

    def has(self, table: Table) -> bool:
        """Tell whether any folder has rows of the table."""
        return any(_rows(folder, table) for folder in self._having(table))

    def read(
        self, table: Table, columns: Sequence[str], where: pc.Expression | None = None
    ) -> pa.Table:
        """Return columns of all rows that an expression chooses."""
        parts = [self._one(folder, table, columns, where) for folder in self._having(table)]
        chosen = pa.schema([arrow_schema(table).field(name) for name in columns])
        return pa.concat_tables(parts) if parts else chosen.empty_table()

    def count(self, table: Table, where: pc.Expression | None = None) -> int:
        """Return how many rows there are."""
        return sum(
            _dataset(folder, table).count_rows(filter=self._of_cluster(table, where))
            for folder in self._having(table)
        )

    def last_day(self, table: Table) -> str | None:
        """Return the last ``dt`` of a table by day."""
        places = [
            place.name.removeprefix("dt=")
            for folder in self._having(table)
            for place in (folder / table.name).glob("cluster_id=*/dt=*")
        ]
        return max(places, default=None)

    def table_checks(self) -> Iterator[Check]:
        """Say how many rows each table has, and from when to when."""
        for folder in self.folders:
            found = [table for table in TABLES.values() if has_table(folder, table)]
            if not found:
                told = f"{folder} has no table of these jobs: name the folder above the tables."
                yield fail("tables", told)
            for table in found:
                yield _table_check(folder, table)

    def _having(self, table: Table) -> list[Path]:
        return [folder for folder in self.folders if has_table(folder, table)]

    def _one(
        self, folder: Path, table: Table, columns: Sequence[str], where: pc.Expression | None
    ) -> pa.Table:
        return _dataset(folder, table).to_table(
            columns=list(columns), filter=self._of_cluster(table, where)
        )

    def _of_cluster(self, table: Table, where: pc.Expression | None) -> pc.Expression | None:
        if self.cluster is None or "cluster_id" not in arrow_schema(table).names:
            return where
        mine = pc.field("cluster_id") == self.cluster
        return mine if where is None else where & mine


def _dataset(folder: Path, table: Table) -> Any:
    schema = arrow_schema(table)
    kinds = pa.schema([schema.field(name) for name in table.partitions])
    return dataset(
        folder / table.name,
        schema=schema,
        format="parquet",
        partitioning=partitioning(kinds, flavor="hive") if table.partitions else None,
    )


def _files(folder: Path, table: Table) -> Iterator[pq.FileMetaData]:
    for file in sorted((folder / table.name).rglob("*.parquet")):
        yield pq.read_metadata(file)


def _rows(folder: Path, table: Table) -> int:
    return sum(file.num_rows for file in _files(folder, table))


def _table_check(folder: Path, table: Table) -> Check:
    try:
        files = list(_files(folder, table))
    except (OSError, pa.ArrowInvalid) as error:
        told = f"{folder / table.name} cannot be read ({error}): run the job that writes it again."
        return fail(table.name, told)
    rows = sum(file.num_rows for file in files)
    if not rows and table.name != "quarantine":
        told = f"{folder / table.name} has no rows: look at the report of the job that wrote it."
        return warn(table.name, told)
    first, last = _time_range(files, table)
    when = f", {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC" if first and last else ""
    return ok(table.name, f"{rows:,} rows in {len(files)} files{when}.")


def _time_range(
    files: Sequence[pq.FileMetaData], table: Table
) -> tuple[datetime | None, datetime | None]:
    """Read the first and last time from the statistics in the footers."""
    names = arrow_schema(table).names
    column = next((name for name in _TIMES if name in names), None)
    found = [
        group.column(number).statistics
        for file in files
        for group in map(file.row_group, range(file.num_row_groups))
        for number in range(group.num_columns)
        if group.column(number).path_in_schema == column
    ]
    known = [result for result in found if result is not None and result.has_min_max]
    return (
        min((item.min for item in known), default=None),
        max((item.max for item in known), default=None),
    )
