"""Tidy rows, of Parquet and of lines of CSV: which column is what, and their points.

Workers have numpy and pyarrow, and not what the driver needs beside them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from app.domain.metric_labels import (
    BROKER,
    CLUSTER,
    INSTANCE,
    METRIC,
    RESOURCE,
    labels_by_field,
    plain_name,
)
from app.pipeline.errors import UsageError
from app.pipeline.ingest.metric_map import COLUMNS, LABELS, OPTIONAL, MetricMap
from app.pipeline.ingest.points import Rows
from app.pipeline.ingest.texts import Texts, decoded, numbers_of, time_of

Columns = Mapping[str, str]
"""``ts``, ``value`` or a field of labels to the header of its column."""


class Headers(NamedTuple):
    """Which header is what, in files that are read alike.

    Attributes:
        columns: Those that are read.
        cluster: The cluster id of points that have no field of it.
        schema: Of Parquet; else null.
        names: Those of all columns, in order.
        line: The header of CSV.
    """

    columns: Columns
    cluster: str
    schema: pa.Schema | None
    names: Sequence[str]
    line: str

    @property
    def read(self) -> list[str]:
        """The headers that are read, in the order of the texts of rows."""
        return sorted(set(self.columns.values()))


def columns_of(headers: Sequence[str], metric_map: MetricMap, where: str) -> Columns:
    """Find the columns of a file.

    Raises:
        UsageError: A column is missing.
    """
    mapped, fields = metric_map.columns, labels_by_field(headers)
    own = {name: _header_of(name, headers, fields) for name in (*COLUMNS, OPTIONAL)}
    own |= mapped
    found = {LABELS.get(name, name): header for name, header in own.items()}
    if "broker_id" not in mapped and (metric_map.instances or found[BROKER] is None):
        found[INSTANCE] = next(iter(fields.get(INSTANCE, ())), None)
    optional = {OPTIONAL, *mapped}
    if found[BROKER] or found.get(INSTANCE):
        optional.add("broker_id")
    if found[METRIC] or found[RESOURCE]:
        optional |= {"metric", "resource"}
    missing = [name for name in COLUMNS if own[name] is None and name not in optional]
    missing += [
        f"{name} (mapped to {header!r})"
        for name, header in own.items()
        if header is not None and header not in headers
    ]
    if missing:
        message = (
            f"{where} has no column {', '.join(missing)}. Name the right headers in the file of "
            "--map, below `columns`; null where there is none."
        )
        raise UsageError(message, content=f"Its headers are {', '.join(headers)}.")
    return {name: header for name, header in found.items() if header is not None}


def _header_of(
    name: str, headers: Sequence[str], fields: Mapping[str, Sequence[str]]
) -> str | None:
    if name in headers:
        return name
    if name in LABELS:
        return next(iter(fields.get(LABELS[name], ())), None)
    return next((header for header in headers if plain_name(header) == name), None)


def delimiter_of(header: str) -> str:
    """Return what separates the cells: a tab in the header says that tabs do."""
    return "\t" if "\t" in header else ","


def cells(read: pa.Table, headers: Headers) -> Rows:
    """Return the points of lines of CSV: file, line, text and the columns of the headers."""
    columns = read.select(range(3, read.num_columns)).rename_columns(headers.read)
    points = _points(read, columns, headers)
    return points, lambda at, _: decoded(read[2].take(pa.array(at)))


def tidy_rows(read: pa.Table, headers: Headers) -> Rows:
    """Return the points of rows: file, line and the columns of the headers."""
    columns = read.select(range(2, read.num_columns)).rename_columns(headers.read)
    points = _points(read, columns, headers)
    return points, lambda at, _: _objects_of_json(columns.take(pa.array(at)))


def _points(read: pa.Table, rows: pa.Table, headers: Headers) -> pa.Table:
    columns = {name: rows[header] for name, header in headers.columns.items()}
    columns |= {"ts": times_of(rows, headers), "file": read["file"], "line": read["line"]}
    value = columns.get("value")
    columns["value"] = pa.nulls(len(read), pa.float64()) if value is None else numbers_of(value)
    columns.setdefault(CLUSTER, Texts.same(headers.cluster, len(read)).array())
    return pa.table(columns)


def times_of(rows: pa.Table, headers: Headers) -> pa.Array:
    """Return the times of rows in microseconds of the epoch; without a zone a time is UTC."""
    header = headers.columns.get("ts")
    if header is None:
        return pa.nulls(len(rows), pa.int64())
    column = rows[header]
    kind = column.type
    if pa.types.is_integer(kind) and headers.schema is not None:
        # Spark has no type for nanoseconds: they are whole numbers.
        kind = headers.schema.field(header).type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pc.divide(column.cast(pa.int64()), 1_000)
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    return Texts.of(column).read(time_of, pa.int64())


def _objects_of_json(rows: pa.Table) -> list[str]:
    columns = dict(zip(rows.column_names, map(_plain, rows.columns), strict=True))
    return [
        json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, separators=(",", ":"))
        for row in zip(*columns.values(), strict=True)
    ]


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
