"""Tidy rows of Parquet as rows of the input, whatever the types of their columns."""

import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.ingest.metric_map import Columns
from app.pipeline.ingest.points import LABELS, Rules, judge
from app.pipeline.ingest.rows import number_of, time_of
from app.pipeline.ingest.texts import Texts
from app.pipeline.usage.measures import Numbers

_FIELDS: Final = {
    name: {"cluster": "cluster_id", "broker": "broker_id"}.get(name, name) for name in LABELS
}
"""A label to the field that holds it."""

_NANOS: Final = 1000


class Headers(NamedTuple):
    """Which header is what, in files that are read alike.

    Attributes:
        columns: A field of a point to its header.
        nanos: The headers of times in nanoseconds, which Spark reads as whole numbers.
        cluster: The cluster id of points that have no field of it.
    """

    columns: Columns
    nanos: frozenset[str]
    cluster: str

    @property
    def read(self) -> list[str]:
        """The headers that are read, in the order of the texts of rows."""
        return sorted({header for header in self.columns.values() if header is not None})


def judge_rows(
    read: pa.Table, headers: Headers, rules: Rules, files: Numbers, positions: Numbers
) -> pa.Table:
    """Judge rows of files that are read alike; a line is a row of the file, from 1.

    Args:
        read: The columns of the headers.
        headers: Say which column is what.
        rules: How.
        files: The number of each row's file.
        positions: The number of each row in its file, from 0.

    Returns:
        As ``judge``.
    """
    columns = headers.columns

    def column(field: str) -> pa.ChunkedArray | None:
        header = columns.get(field)
        return None if header is None else read[header]

    labels = {name: column(field) for name, field in _FIELDS.items()}
    found = {
        "file": pa.array(files.astype(np.int32)),
        "line": pa.array(positions + 1),
        "position": pa.array(positions),
        "ts": times_of(read, headers),
        "value": _values(column("value"), len(read)),
        **{name: values for name, values in labels.items() if values is not None},
    }
    if labels["cluster"] is None:
        found["cluster"] = Texts.same(headers.cluster, len(read)).array()
    return judge(pa.table(found), rules, _texts(read, headers.read))


def times_of(read: pa.Table, headers: Headers) -> pa.Array:
    """Return the times of rows in microseconds of the epoch; without a zone a time is UTC."""
    header = headers.columns.get("ts")
    column = None if header is None else read[header]
    return _times(column, len(read), is_nanos=header in headers.nanos)


def _times(column: pa.ChunkedArray | None, number: int, *, is_nanos: bool) -> pa.Array:
    if column is None:
        return pa.nulls(number, pa.int64())
    if pa.types.is_timestamp(column.type):
        if column.type.unit == "ns":
            return pc.divide(column.cast(pa.int64()), _NANOS)
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    if is_nanos and pa.types.is_integer(column.type):
        # Spark has no type for them.
        return pc.divide(column, _NANOS)
    return _each(column, time_of, pa.int64())


def _values(column: pa.ChunkedArray | None, number: int) -> pa.Array:
    if column is None:
        return pa.nulls(number, pa.float64())
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    return _each(column, number_of, pa.float64())


def _each(
    column: pa.ChunkedArray, read: Callable[[str], float | None], kind: pa.DataType
) -> pa.Array:
    texts = Texts.of(column)
    found = pa.array([None if text is None else read(text) for text in texts.values], kind)
    return found.take(pa.array(texts.codes))


def _texts(read: pa.Table, headers: Sequence[str]) -> Callable[[Numbers], pa.Array]:
    """Return what makes the texts of rows: objects of JSON."""

    def texts(at: Numbers) -> pa.Array:
        rows = read.select(headers).take(pa.array(at))
        columns = [_plain(rows[header]) for header in headers]
        return pa.array(
            [
                json.dumps(
                    dict(zip(headers, row, strict=True)), ensure_ascii=False, separators=(",", ":")
                )
                for row in zip(*columns, strict=True)
            ],
            pa.string(),
        )

    return texts


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return [_as_json(value) for value in column.to_pylist()]


def _as_json(value: Any) -> Any:
    """Return a value as Spark writes it into JSON."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        zone = "Z" if value.tzinfo else ""
        return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}{zone}"
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
