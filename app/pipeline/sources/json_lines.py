"""Lines of JSON: what prometheus-kafka-adapter writes, and VictoriaMetrics' export."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from app.pipeline.sources.label_sets import NAME, labels_of
from app.pipeline.sources.points import UNPARSABLE, Points
from app.pipeline.sources.series import add_series
from app.pipeline.sources.values import milliseconds_of, number_of, time_of


def read_adapter_lines(stream: BinaryIO, points: Points) -> Iterator[pa.RecordBatch]:
    """Read one message of prometheus-kafka-adapter a line: timestamp, value, name, labels."""
    for number, line in enumerate(stream, 1):
        if line.strip():
            add_adapter_message(number, line, points)
        yield from points.batches()


def add_adapter_message(line: int, message: bytes, points: Points) -> None:
    """Add the point of one message; ``line`` is where it stands."""
    told = json_of(message)
    try:
        ts, value = time_of(told["timestamp"]), number_of(told["value"])
        labels = labels_of(told["labels"])
        name = told.get("name") or told["labels"].get(NAME) or ""
    except (TypeError, KeyError, AttributeError):
        problem: str | None = UNPARSABLE
    else:
        named = labels._replace(metric=name) if labels and isinstance(name, str) else None
        problem = points.add_row(line, named, ts, value)
    if problem:
        points.reject(line, problem, text_of(message))


def read_export_lines(stream: BinaryIO, points: Points) -> Iterator[pa.RecordBatch]:
    """Read one series of VictoriaMetrics a line: metric, values, timestamps in milliseconds."""
    for number, line in enumerate(stream, 1):
        if line.strip():
            _add_export_line(number, line, points)
        yield from points.batches()


def _add_export_line(number: int, line: bytes, points: Points) -> None:
    told = json_of(line)
    try:
        series = told["metric"]
        pairs = list(zip(told["timestamps"], told["values"], strict=True))
    except (TypeError, KeyError, ValueError):
        points.reject(number, UNPARSABLE, text_of(line))
        return
    # What is no number in JSON is null in an export.
    read = [(milliseconds_of(ts), number_of("NaN" if item is None else item)) for ts, item in pairs]
    add_series(number, series, pairs, read, points)


def json_of(text: bytes) -> Any:
    """Return the parsed text; null where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_of(line: bytes) -> str:
    """Return a line as text, with what is no UTF-8 escaped."""
    return line.decode("utf-8", "backslashreplace").rstrip("\r\n")
