"""What the tasks of readers do: they make rows of what they read, and judge them.

Workers have numpy and pyarrow, and not what the driver needs beside them.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.ingest.labels import SeriesLabels
from app.pipeline.ingest.metric_map import Columns
from app.pipeline.ingest.points import LABELS, Rows, Rules, judge, without_dictionaries
from app.pipeline.ingest.texts import Texts, decoded, numbers_of, time_of
from app.pipeline.usage.measures import Numbers

Batches = Iterable[pa.RecordBatch]


class Headers(NamedTuple):
    """Which header is what, in files that are read alike; Parquet has a schema.

    ``cluster`` is the cluster id of points that have no field of it.
    """

    columns: Columns
    cluster: str
    schema: pa.Schema | None

    @property
    def read(self) -> list[str]:
        """The headers that are read, in the order of the texts of rows."""
        return sorted({header for header in self.columns.values() if header is not None})


def judge_lines(
    batches: Batches,
    *,
    find: Callable[[pa.Table, SeriesLabels], Rows],
    rules: Rules,
    numbers: Mapping[str, int],
) -> Iterator[pa.RecordBatch]:
    """Judge batches of source, line, text, and what ``find`` makes rows of."""
    labels = SeriesLabels(rules.map)
    for batch in batches:
        lines = _numbered(pa.Table.from_batches([batch]), numbers)
        yield from without_dictionaries(judge(find(lines, labels), rules)).to_batches()


def judge_columns(
    batches: Batches, *, headers: Headers, rules: Rules, numbers: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Judge batches of source, line, text and the columns of the headers, as ``judge_rows``."""
    for batch in batches:
        read = pa.Table.from_batches([batch])
        read = _numbered(read.rename_columns([*read.column_names[:3], *headers.read]), numbers)
        yield from without_dictionaries(judge_rows(read, headers, rules)).to_batches()


def _numbered(read: pa.Table, numbers: Mapping[str, int]) -> pa.Table:
    files = Texts.of(read.column(0)).look_up(lambda source: numbers[f"{source}"], np.int32)
    return read.set_column(0, "file", pa.array(files))


def judge_rows(read: pa.Table, headers: Headers, rules: Rules) -> pa.Table:
    """Judge rows of files that are read alike, as ``judge`` does.

    ``read`` has the columns file, line and text (null where it is made of the others), and then
    those of the headers.
    """
    (file, line, text), columns = read.columns[:3], read.select(range(3, read.num_columns))

    def column(field: str) -> pa.ChunkedArray | None:
        header = headers.columns.get(field)
        return None if header is None else columns[header]

    def texts(at: Numbers, _: Numbers) -> Sequence[str]:
        if text.null_count:
            return _objects_of_json(columns.take(pa.array(at)))
        return decoded(text.take(pa.array(at)))

    value = column("value")
    found = {
        "file": file,
        "line": line,
        "ts": times_of(columns, headers),
        "value": pa.nulls(len(read), pa.float64()) if value is None else numbers_of(value),
    }
    for name in LABELS:
        field = {"cluster": "cluster_id", "broker": "broker_id"}.get(name, name)
        if (values := column(field)) is not None:
            found[name] = values
    if "cluster" not in found:
        found["cluster"] = Texts.same(headers.cluster, len(read)).array()
    return judge((pa.table(found), texts), rules)


def times_of(read: pa.Table, headers: Headers) -> pa.Array:
    """Return the times of rows in microseconds of the epoch; without a zone a time is UTC."""
    header = headers.columns.get("ts")
    if header is None:
        return pa.nulls(len(read), pa.int64())
    column = read[header]
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
    columns = [_plain(column) for column in rows.columns]
    return [
        json.dumps(
            dict(zip(rows.column_names, row, strict=True)),
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for row in zip(*columns, strict=True)
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
