"""Tidy Parquet: one row a point."""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.pipeline.sources.columns import FIELDS, Columns
from app.pipeline.sources.points import Labels, Points
from app.pipeline.sources.values import number_of, time_of, within

_ROWS: Final = 20_000
_TIME: Final = pa.timestamp("us", "UTC")


def read_parquet(piece: Mapping[str, Any], points: Points) -> Iterator[pa.RecordBatch]:
    """Read row groups of a file; a line is a row of the file, from 1.

    Args:
        piece: ``path``, ``columns``, ``groups``: the numbers of the row groups, and ``cluster``:
            what the path says.
        points: Where to.
    """
    groups, columns = piece["groups"], piece["columns"]
    headers = sorted({column for column in columns.values() if column})
    with pq.ParquetFile(piece["path"]) as file:
        line = 1 + sum(file.metadata.row_group(number).num_rows for number in range(groups[0]))
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=headers):
            _add(batch, line, piece, points)
            line += batch.num_rows
            yield from points.batches()


def _add(batch: pa.RecordBatch, line: int, piece: Mapping[str, Any], points: Points) -> None:
    columns: Columns = piece["columns"]
    nothing = {"cluster_id": piece["cluster"]}
    times, values, *names = (
        _cells(field, batch.column(header))
        if (header := columns[field])
        else [nothing.get(field, "")] * batch.num_rows
        for field in FIELDS
    )
    labels = map(Labels, *names)
    for at, (told, ts, value) in enumerate(zip(labels, times, values, strict=True)):
        problem = points.add_row(line + at, told, ts, value)
        if problem:
            points.reject(line + at, problem, _text_of(batch, at))


def _cells(field: str, column: pa.Array) -> list[Any]:
    if field == "ts":
        return _times(column)
    if field == "value":
        if pa.types.is_floating(column.type):
            return list(column.cast(pa.float64()).to_pylist())
        return [_number(row) for row in column.to_pylist()]
    return _texts(pc.fill_null(column.cast(pa.string()), ""))


def _texts(column: pa.Array) -> list[Any]:
    """Return texts; what is no UTF-8 becomes lone surrogates, which no name may have."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        told = column.cast(pa.string()).cast(pa.binary()).to_pylist()
        return [item if item is None else item.decode(errors="surrogateescape") for item in told]


def _number(told: object) -> float | None:
    return float(told) if isinstance(told, Decimal) else number_of(told)


def _times(column: pa.Array) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        # Without a zone it is UTC.
        told = column.cast(_TIME, safe=False).cast(pa.int64()).to_pylist()
        return [None if item is None else within(item) for item in told]
    return [time_of(row) for row in column.to_pylist()]


def _text_of(batch: pa.RecordBatch, at: int) -> str:
    row = batch.slice(at, 1)
    told = {name: _texts(row.column(name))[0] for name in row.schema.names}
    return json.dumps(told, default=str, ensure_ascii=False)
