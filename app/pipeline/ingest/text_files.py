"""Metrics in CSV and in JSON: Prometheus, VictoriaMetrics' export, prometheus-kafka-adapter."""

import csv
import json
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, BinaryIO, Final

import pyarrow as pa

from app.domain.metric_labels import INSTANCE, METRIC, labels_by_field
from app.pipeline.ingest.metric_map import FIELDS, LABELS, Columns, MetricMap
from app.pipeline.ingest.rows import (
    UNPARSABLE,
    UNREADABLE,
    Labels,
    Point,
    Rows,
    number_of,
    scaled_time,
    time_of,
)

GZIP: Final = b"\x1f\x8b"
"""What a file begins with that is compressed."""

_LONGEST_RECORD: Final = 100
"""Lines; a quote that is never closed would swallow the rows below it."""


def csv_header(stream: BinaryIO) -> list[str]:
    """Return the names of the columns.

    Raises:
        ValueError: It has no header that can be read.
    """
    _, header, _ = next(_records(stream), (0, None, ""))
    if not header or not all(name.isprintable() for name in header):
        message = "no header"
        raise ValueError(message)
    return header


def read_csv(stream: BinaryIO, rows: Rows, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Read the rows below the header; a name may hold line breaks, where it is quoted."""
    records = _records(stream)
    header = next(records)[1] or []
    indexes = [header.index(columns[field] or "") if columns[field] else None for field in FIELDS]
    for line, cells, raw in records:
        if cells is None or len(cells) != len(header):
            rows.reject(line, UNPARSABLE, raw)
        else:
            ts, value, *names = ["" if index is None else cells[index] for index in indexes]
            rows.add(line, Labels(*names), Point(time_of(ts), number_of(value), raw))
        yield from rows.batches()


def _records(stream: BinaryIO) -> Iterator[tuple[int, list[str] | None, str]]:
    """Yield the first line's number, the cells (null where it is no CSV) and the text.

    A tab in the first line says that tabs separate the cells. Of what is no CSV the first line
    alone is left out.
    """
    # What is no UTF-8 becomes lone surrogates, which no name may have.
    lines = (
        line.decode("utf-8" if number else "utf-8-sig", "surrogateescape")
        for number, line in enumerate(stream)
    )
    waiting, number = deque(islice(lines, 1)), 1
    delimiter = "\t" if waiting and "\t" in waiting[0] else ","
    taken: list[str] = []

    def reader() -> Iterator[list[str]]:
        return csv.reader(_take(waiting, lines, taken), strict=True, delimiter=delimiter)

    records = reader()
    while True:
        cells: list[str] | None
        try:
            cells = next(records)
        except StopIteration:
            return
        except csv.Error:
            cells = None
            waiting.extendleft(reversed(taken[1:]))
            del taken[1:]
            records = reader()
        if cells != []:
            yield number, cells, "".join(taken).rstrip("\r\n")
        number += len(taken)
        taken.clear()


def _take(waiting: deque[str], lines: Iterator[str], taken: list[str]) -> Iterator[str]:
    """Yield lines and note them, until there are too many for a record."""
    while len(taken) < _LONGEST_RECORD:
        line = waiting.popleft() if waiting else next(lines, "")
        if not line:
            return
        taken.append(line)
        yield line
    message = "a quote is not closed"
    raise csv.Error(message)


_NAME: Final = "__name__"
_OF_PAIR: Final = 2


class SeriesLabels:
    """Reads the labels of series in JSON, with the names that a map gives them."""

    def __init__(self, names: MetricMap) -> None:
        """Take the map."""
        self._mapped = {LABELS[column]: label for column, label in names.columns.items()}
        self._instances = names.instances
        self._cached = lru_cache(maxsize=100_000)(self._read)

    @property
    def names_metric(self) -> bool:
        """Whether the map says which label is the metric's name."""
        return METRIC in self._mapped

    def read(self, labels: object) -> Labels | None:
        """Return the labels of a JSON object; null where it is none, or a value is no text."""
        if not isinstance(labels, dict):
            return None
        try:
            return self._cached(tuple(labels.items()))
        except TypeError:
            return None

    def _read(self, labels: tuple[tuple[str, object], ...]) -> Labels | None:
        present: dict[str, str] = {}
        for name, value in labels:
            if value is not None and not isinstance(value, str):
                return None
            if value:
                present[name] = value
        fields = {**labels_by_field(present), METRIC: [_NAME]}
        fields |= {field: [label] if label else [] for field, label in self._mapped.items()}
        found = {
            field: present[names[0]]
            for field, names in fields.items()
            if names and names[0] in present
        }
        # Of several that may name the broker the map knows which.
        brokers = (
            present[name] for name in fields.get(INSTANCE, ()) if present[name] in self._instances
        )
        if (instance := next(brokers, None)) is not None:
            found[INSTANCE] = instance
        return Labels(**found)


def read_adapter_lines(
    stream: BinaryIO, rows: Rows, names: SeriesLabels
) -> Iterator[pa.RecordBatch]:
    """Read one message of prometheus-kafka-adapter a line: timestamp, value, name, labels."""
    for number, line in enumerate(stream, 1):
        if line.strip():
            add_adapter_message(number, line, rows, names)
        yield from rows.batches()


def add_adapter_message(line: int, message: bytes, rows: Rows, names: SeriesLabels) -> None:
    """Add the point of one message; ``line`` is where it stands."""
    document, text = _parsed(message), _text_of(message)
    try:
        ts, value = time_of(document["timestamp"]), number_of(document["value"])
        labels = names.read(document["labels"])
        name = document.get("name") or document["labels"].get(_NAME) or ""
    except (TypeError, KeyError, AttributeError):
        rows.reject(line, UNPARSABLE, text)
        return
    if labels and not names.names_metric:
        labels = labels._replace(metric=name) if isinstance(name, str) else None
    rows.add(line, labels, Point(ts, value, text))


def read_export_lines(
    stream: BinaryIO, rows: Rows, names: SeriesLabels
) -> Iterator[pa.RecordBatch]:
    """Read one series of VictoriaMetrics a line: metric, values, timestamps in milliseconds."""
    for number, line in enumerate(stream, 1):
        if line.strip():
            _add_export_line(number, line, rows, names)
        yield from rows.batches()


def _add_export_line(number: int, line: bytes, rows: Rows, names: SeriesLabels) -> None:
    document = _parsed(line)
    try:
        series = document["metric"]
        pairs = list(zip(document["timestamps"], document["values"], strict=True))
    except (TypeError, KeyError, ValueError):
        rows.reject(number, UNPARSABLE, _text_of(line))
        return
    # What is no number in JSON is null in an export.
    read = [
        (scaled_time(ts, 1_000), number_of("NaN" if item is None else item)) for ts, item in pairs
    ]
    _add_series(number, (names.read(series), _json(series)), pairs, read, rows)


def read_query_range(stream: BinaryIO, rows: Rows, names: SeriesLabels) -> Iterator[pa.RecordBatch]:
    """Read the answer of Prometheus' ``query_range`` (or ``query``); a line is a series."""
    try:
        document = json.loads(stream.read())
    except (ValueError, RecursionError) as error:
        rows.reject(0, UNREADABLE, f"no JSON: {error}")
        return
    yield from read_answer(document, rows, names)


def read_answer(document: Any, rows: Rows, names: SeriesLabels) -> Iterator[pa.RecordBatch]:
    """Read a parsed answer; a line is a series."""
    try:
        result = document["data"]["result"]
    except (TypeError, KeyError):
        result = None
    if not isinstance(result, list):
        rows.reject(0, UNREADABLE, "no answer of query_range: data.result lacks series")
        return
    for number, item in enumerate(result, 1):
        pairs = _pairs_of(item)
        if pairs is None:
            rows.reject(number, UNPARSABLE, _json(item))
        else:
            read = [_point_of(pair) for pair in pairs]
            series = item["metric"]
            _add_series(number, (names.read(series), _json(series)), pairs, read, rows)
        yield from rows.batches()


def _add_series(
    line: int,
    series: tuple[Labels | None, str],
    pairs: Sequence[object],
    read: Sequence[tuple[int | None, float | None]],
    rows: Rows,
) -> None:
    """Add the points of a series, which is its labels and their text.

    Points are as the input has them, and their times and values as read.
    """
    labels, text = series
    for pair, (ts, value) in zip(pairs, read, strict=True):
        whole = f'{{"metric": {text}, "value": {_json(pair)}}}'
        rows.add(line, labels, Point(ts, value, whole, text))


def _pairs_of(series: Any) -> list[Any] | None:
    """Return the points of a series of a matrix or a vector; null where it is none of numbers."""
    if not isinstance(series, dict) or "metric" not in series:
        return None
    pairs = series["values"] if "values" in series else [series.get("value")]
    return pairs if isinstance(pairs, list) and pairs != [None] else None


def _point_of(pair: object) -> tuple[int | None, float | None]:
    if not isinstance(pair, list) or len(pair) != _OF_PAIR:
        return None, None
    return scaled_time(pair[0], 1_000_000), number_of(pair[1])


def _parsed(text: bytes) -> Any:
    """Return the parsed text; null where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text_of(line: bytes) -> str:
    """Return a line as text, with what is no UTF-8 escaped."""
    return line.decode("utf-8", "backslashreplace").rstrip("\r\n")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
