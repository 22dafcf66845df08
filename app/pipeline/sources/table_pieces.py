"""The files of a table by day, cut into pieces whose columns tasks read themselves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.pipeline.arrow_storage import arrow_schema
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folders import has_table
from app.pipeline.sources.buckets import Scope, partition_of
from app.pipeline.sources.codes import Integers, in_one_piece
from app.pipeline.tables import Table

WHOLE: Final = b"whole_buckets"
"""In the footer of a file of ``BUCKET_MINUTE``: no other file of its run has the same bucket and
day, so whoever sums up days of buckets has all of each at hand."""

_ROWS: Final = 1_000_000
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class TablePiece:
    """Some row groups of a file.

    Attributes:
        path: Of the file.
        groups: Numbers of the row groups.
        rows: In them.
        cluster: Of all rows.
        day: Of all rows, since the epoch.
        whole: Whether the file is marked with ``WHOLE``.
    """

    path: str
    groups: tuple[int, ...]
    rows: int
    cluster: str
    day: int
    whole: bool

    @property
    def place(self) -> tuple[str, int]:
        """Cluster and day."""
        return self.cluster, self.day


def pieces_of(
    folders: Sequence[Path], table: Table, scope: Scope, *, files: bool = False
) -> list[TablePiece]:
    """Return the pieces of a table by day, in the order of its files; only footers are read.

    Args:
        folders: Above the table.
        table: Which.
        scope: Days and clusters outside of it are left out.
        files: Whether a file is never cut.

    Raises:
        UsageError: A folder has no such table.
    """
    missing = [str(folder) for folder in folders if not has_table(folder, table)]
    if missing:
        message = f"There is no table {table.name} in {', '.join(missing)}."
        raise UsageError(message)
    return [
        piece for folder in folders for piece in pieces_in(folder / table.name, scope, files=files)
    ]


def pieces_in(place: Path, scope: Scope, *, files: bool = False) -> Iterator[TablePiece]:
    """Yield the pieces below the folder that holds a table's partitions."""
    for file in sorted(place.glob("cluster_id=*/dt=*/*.parquet")):
        if file.name.startswith(("_", ".")):
            continue
        named = partition_of(str(file.parent.relative_to(place)))
        cluster, day = named["cluster_id"], date.fromisoformat(named["dt"])
        if scope.has_day(cluster, day):
            yield from _pieces_of(file, cluster, (day - _EPOCH).days, files=files)


def _pieces_of(file: Path, cluster: str, day: int, *, files: bool) -> Iterator[TablePiece]:
    with _told_of(str(file)):
        footer = pq.read_metadata(file)
    whole = WHOLE in (footer.metadata or {})
    groups: list[int] = []
    rows = 0
    for group in range(footer.num_row_groups):
        groups.append(group)
        rows += footer.row_group(group).num_rows
        if (rows >= _ROWS and not files) or group == footer.num_row_groups - 1:
            yield TablePiece(str(file), tuple(groups), rows, cluster, day, whole)
            groups, rows = [], 0


def read_columns(piece: TablePiece, table: Table, columns: Sequence[str], scope: Scope) -> pa.Table:
    """Return columns of a piece, with the types of the table; texts are encoded by dictionaries.

    Raises:
        InfrastructureError: The file is broken.
    """
    schema = arrow_schema(table)
    wanted = [*columns, *({"ts"} - set(columns) if _cuts(scope) else ())]
    texts = [name for name in wanted if pa.types.is_string(schema.field(name).type)]
    with _told_of(piece.path), pq.ParquetFile(piece.path, read_dictionary=texts) as file:
        rows = file.read_row_groups(piece.groups, columns=wanted)
    if _cuts(scope):
        rows = rows.filter(_inside(rows["ts"], scope))
    return pa.table({name: _typed(rows[name], schema.field(name).type) for name in columns})


@contextmanager
def _told_of(path: str) -> Iterator[None]:
    """Name the file that cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        first = str(error).partition("\n")[0]
        message = f"{path} cannot be read ({first}); run the job again that wrote it."
        raise InfrastructureError(message) from error


def array_of(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[Any]:
    """Return numbers as numpy has them, nulls as NaN; whole numbers as 64 bits."""
    values = np.asarray(in_one_piece(column).to_numpy(zero_copy_only=False))
    return values.astype(np.int64) if values.dtype.kind == "i" else values


def micros_of(column: pa.ChunkedArray) -> Integers:
    """Return times as microseconds of the epoch."""
    return array_of(column.cast(pa.int64()))


def same_in_all(pieces: Sequence[TablePiece], column: str) -> Any:
    """Return the one value that a column has in all rows, by the footers; null where unknown."""
    found: set[Any] = set()
    for path in sorted({piece.path for piece in pieces}):
        footer = pq.read_metadata(path)
        place = footer.schema.to_arrow_schema().get_field_index(column)
        for group in range(footer.num_row_groups):
            told = footer.row_group(group).column(place).statistics
            if told is None or not told.has_min_max or told.null_count:
                return None
            found |= {told.min, told.max}
    return found.pop() if len(found) == 1 else None


def rows_by_day(pieces: Sequence[TablePiece]) -> Mapping[tuple[str, int], int]:
    """Count the rows of each cluster's day."""
    days: dict[tuple[str, int], int] = {}
    for piece in pieces:
        days[piece.place] = days.get(piece.place, 0) + piece.rows
    return days


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if pa.types.is_dictionary(column.type) else column.cast(kind)


def _cuts(scope: Scope) -> bool:
    return scope.since is not None or scope.until is not None


def _inside(times: pa.ChunkedArray, scope: Scope) -> pa.ChunkedArray:
    inside = pc.is_valid(times)
    if scope.since is not None:
        inside = pc.and_(inside, pc.greater_equal(times, _scalar(scope.since, times.type)))
    if scope.until is not None:
        inside = pc.and_(inside, pc.less(times, _scalar(scope.until, times.type)))
    return inside


def _scalar(time: datetime, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(time, pa.timestamp("us", "UTC")).cast(kind)
