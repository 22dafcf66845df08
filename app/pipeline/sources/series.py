"""Series: labels with many points."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa

from app.pipeline.sources.label_sets import labels_of
from app.pipeline.sources.points import UNPARSABLE, UNREADABLE, Points, as_text
from app.pipeline.sources.values import number_of, seconds_of

_OF_PAIR: Final = 2

Read = Sequence[tuple[int | None, float | None]]
"""Times in microseconds and values; null where one cannot be read."""


def add_series(line: int, series: Any, pairs: Sequence[object], read: Read, points: Points) -> None:
    """Add the points of a series.

    Args:
        line: Where it stands.
        series: Its labels.
        pairs: Time and value of each point, as the input has them.
        read: The same, read.
        points: Where to.
    """
    labels = labels_of(series)
    identity = UNPARSABLE if labels is None else points.identity(labels)
    if isinstance(identity, str):
        kept = sum(ts is None or not points.outside(ts) for ts, _ in read)
        points.leave_out(len(read) - kept)
        if kept:
            points.reject(line, identity, json.dumps(series, ensure_ascii=False), kept)
        return
    for pair, (ts, value) in zip(pairs, read, strict=True):
        if ts is None or value is None:
            problem: str | None = UNPARSABLE
        else:
            problem = points.add(line, identity, ts, value)
        if problem:
            points.reject(line, problem, as_text(series, pair))


def read_query_range(stream: BinaryIO, points: Points) -> Iterator[pa.RecordBatch]:
    """Read the answer of Prometheus' ``query_range`` (or ``query``); a line is a series."""
    try:
        result = json.loads(stream.read())["data"]["result"]
    except (ValueError, RecursionError) as error:
        points.reject(0, UNREADABLE, f"no JSON: {error}")
        return
    except (TypeError, KeyError):
        result = None
    if not isinstance(result, list):
        points.reject(0, UNREADABLE, "no answer of query_range: data.result lacks series")
        return
    for number, item in enumerate(result, 1):
        pairs = _pairs_of(item)
        if pairs is None:
            points.reject(number, UNPARSABLE, json.dumps(item, ensure_ascii=False))
        else:
            add_series(number, item["metric"], pairs, [_point_of(pair) for pair in pairs], points)
        yield from points.batches()


def _pairs_of(series: Any) -> list[Any] | None:
    """Return the points of a series of a matrix or a vector; null where it is none of numbers."""
    if not isinstance(series, dict) or "metric" not in series:
        return None
    pairs = series["values"] if "values" in series else [series.get("value")]
    return pairs if isinstance(pairs, list) and pairs != [None] else None


def _point_of(pair: object) -> tuple[int | None, float | None]:
    if not isinstance(pair, list) or len(pair) != _OF_PAIR:
        return None, None
    return seconds_of(pair[0]), number_of(pair[1])
