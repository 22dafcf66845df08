"""Series with labels, in JSON that Spark has split: their points as rows that ``judge`` takes.

Prometheus, VictoriaMetrics' export and prometheus-kafka-adapter write such series.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.metric_labels import INSTANCE, METRIC, labels_by_field
from app.pipeline.ingest.metric_map import LABELS, MetricMap
from app.pipeline.ingest.points import FIELDS, UNREADABLE, Rows
from app.pipeline.ingest.texts import (
    Texts,
    decoded,
    number_of,
    numbers_of,
    pairs_of_texts,
    scaled_time,
    time_of,
    whole,
)
from app.pipeline.usage.measures import Numbers

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_QUOTE: Final = '"'
"""Spark adds it to NaN and infinity, which are no JSON."""


class SeriesLabels:
    """Reads the labels of series in JSON, with the names that a map gives them."""

    def __init__(self, names: MetricMap) -> None:
        self._mapped = {LABELS[column]: label for column, label in names.columns.items()}
        self._instances = names.instances

    # Each task has caches of its own.
    @cached_property
    def _cached(self) -> Callable[[str, str], Mapping[str, str] | None]:
        return lru_cache(maxsize=2**18)(self._read)

    @cached_property
    def _fields(self) -> Callable[[tuple[str, ...]], Mapping[str, Sequence[str]]]:
        return lru_cache(maxsize=2**10)(self._fields_of)

    def columns(self, series: Texts, metrics: Texts) -> tuple[Mapping[str, pa.Array], Numbers]:
        """Return the columns of labels, and which rows have labels that can be read.

        Where no metric is named beside the series, its labels name it.
        """
        codes, both = pairs_of_texts(series, metrics)
        found = [self._cached(text or "", metric or "") for text, metric in both]
        indices = pa.array(codes.astype(np.int32))
        rows = [labels or {} for labels in found]
        columns = {
            name: pa.DictionaryArray.from_arrays(indices, _texts(row.get(name, "") for row in rows))
            for name in FIELDS
        }
        is_read: Numbers = np.array([labels is not None for labels in found], bool)[codes]
        return columns, is_read

    def _read(self, series: str, metric: str) -> Mapping[str, str] | None:
        """Return the labels; null where they are no object, or a value is no text."""
        labels = _parsed(series)
        if not isinstance(labels, dict):
            return None
        if not all(value is None or isinstance(value, str) for value in labels.values()):
            return None
        present = {name: value for name, value in labels.items() if value}
        fields = self._fields(tuple(present))
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
        if metric and METRIC not in self._mapped:
            found[METRIC] = metric
        return found

    def _fields_of(self, labels: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
        fields = {**labels_by_field(labels), METRIC: ["__name__"]}
        return fields | {field: [name] if name else [] for field, name in self._mapped.items()}


def messages(lines: pa.Table, labels: SeriesLabels) -> Rows:
    """Return the points of messages of prometheus-kafka-adapter: lines of ``MESSAGES``."""
    columns, is_read = labels.columns(Texts.of(lines["labels"]), Texts.of(lines["name"]))
    ts = Texts.of(lines["timestamp"]).read(time_of, pa.int64())
    value = numbers_of(pc.utf8_trim(lines["value"], _QUOTE))
    # Without labels a point has no time, so that it is refused.
    found = {"ts": pc.if_else(is_read, ts, None), "value": value, **columns}
    rows = pa.table({"file": lines["file"], "line": lines["line"], **found})
    return rows, lambda at, _: decoded(lines["text"].take(pa.array(at)))


def export(lines: pa.Table, labels: SeriesLabels) -> Rows:
    """Return the points of series of VictoriaMetrics: lines of ``EXPORT``, in milliseconds."""
    times, values = (whole(lines[name]) for name in ("timestamps", "values"))
    number = pc.list_value_length(values).fill_null(-1).to_numpy()
    is_paired = number == pc.list_value_length(times).fill_null(-2).to_numpy()
    at = np.repeat(np.arange(len(lines)), np.where(is_paired, number, 1))
    pair = pa.array(np.cumsum(is_paired[at]) - 1, mask=~is_paired[at])
    times, values = (
        each.filter(pa.array(is_paired)).flatten().take(pair) for each in (times, values)
    )
    # What is no number in JSON is null in an export.
    numbers = pc.utf8_trim(values.fill_null("NaN"), _QUOTE)
    ts = Texts.of(times).read(lambda text: scaled_time(text, 1_000), pa.int64())

    def pair_of(row: int) -> str | None:
        both = times[row].as_py(), values[row].as_py() or "null"
        return f"[{', '.join(both)}]" if is_paired[at[row]] else None

    return _series(lines, at, labels, (ts, numbers_of(numbers)), pair_of)


def answers(lines: pa.Table, labels: SeriesLabels) -> Rows:
    """Return the points of answers of Prometheus' ``query_range`` (or ``query``), a series a line.

    What is no answer is a line of the number 0.
    """
    items = [_parsed(text or "") for text in lines["text"].to_pylist()]
    found = [_pairs_of(item) for item in items]
    pairs_of_all = [pair for each in found for pair in ([None] if each is None else each)]
    at = np.repeat(np.arange(len(lines)), [1 if each is None else len(each) for each in found])
    is_series = [each is not None for each in found]
    metrics = [
        None if each is None else _json(item["metric"])
        for item, each in zip(items, found, strict=True)
    ]
    points = [_point_of(pair) for pair in pairs_of_all]
    ts = pa.array([time for time, _ in points], pa.int64())
    value = pa.array([number for _, number in points], pa.float64())

    def pair_of(row: int) -> str | None:
        return _json(pairs_of_all[row]) if is_series[at[row]] else None

    lines = lines.append_column("metric", pa.array(metrics, pa.string()))
    rows, texts = _series(lines, at, labels, (ts, value), pair_of)
    is_answer = pc.greater(rows["line"], 0)
    problem = pc.if_else(is_answer, pa.scalar(None, pa.string()), UNREADABLE)
    return rows.append_column("problem", problem), texts


class Series(NamedTuple):
    """How series are found in JSON.

    Attributes:
        ddl: What Spark finds in a line, or in a file: JSON as text, and of a text what it says.
        find: Makes points of it, by ``SeriesLabels``.
    """

    ddl: str
    find: Callable[..., Rows]


MESSAGES: Final = Series("timestamp string, value string, name string, labels string", messages)
EXPORT: Final = Series("metric string, values array<string>, timestamps array<string>", export)
ANSWERS: Final = Series("data struct<result: array<string>>", answers)


def _series(
    lines: pa.Table,
    at: Numbers,
    labels: SeriesLabels,
    points: tuple[pa.Array, pa.Array],
    pair_of: Callable[[int], str | None],
) -> Rows:
    """Return the points of series: of lines with file, line, text and metric, the labels.

    ``at`` is the line of each point, and ``points`` are times and values. ``pair_of`` returns the
    text of both; null where the line of a point has none.
    """
    columns, is_read = labels.columns(Texts.of(lines["metric"]), Texts.same("", len(lines)))
    columns = {name: column.take(pa.array(at)) for name, column in columns.items()}
    is_read = is_read[at]

    def texts(rows: Numbers, of_series: Numbers) -> list[str]:
        are_whole, found = is_read[rows] & ~of_series, []
        for row, is_whole in zip(rows.tolist(), are_whole.tolist(), strict=True):
            line, metric = (lines[name].slice(at[row], 1) for name in ("text", "metric"))
            pair = pair_of(row)
            if pair is None:
                found += decoded(line)
            elif is_whole:
                found.append(f'{{"metric": {metric[0]}, "value": {pair}}}')
            else:
                found.append(f"{metric[0]}")
        return found

    own = {name: lines[name].take(pa.array(at)) for name in ("file", "line")}
    found = {"ts": pc.if_else(is_read, points[0], None), "value": points[1], **columns}
    return pa.table({**own, **found}), texts


def _texts(values: Iterable[str]) -> pa.Array:
    """Return texts; lone surrogates, which no name may have, as bytes that are no UTF-8."""
    encoded = [value.encode(errors="surrogatepass") for value in values]
    return pa.array(encoded, pa.binary()).view(pa.string())


def _pairs_of(series: Any) -> list[Any] | None:
    """Return the points of a series of a matrix or a vector; null where it is none of numbers."""
    if not isinstance(series, dict) or "metric" not in series:
        return None
    pairs = series["values"] if "values" in series else [series.get("value")]
    return pairs if isinstance(pairs, list) and pairs != [None] else None


def _point_of(pair: object) -> tuple[int | None, float | None]:
    if not isinstance(pair, list) or len(pair) != 2:
        return None, None
    return scaled_time(pair[0], 1_000_000), number_of(pair[1])


def _parsed(text: str) -> Any:
    """Return the parsed text; null where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Lone surrogates are no text.
    return text if text.isascii() or not _SURROGATES.search(text) else json.dumps(value)
