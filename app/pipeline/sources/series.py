"""Series: labels with many points."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from app.pipeline.sources.label_sets import labels_of
from app.pipeline.sources.points import UNPARSABLE, UNREADABLE, Points, as_text
from app.pipeline.sources.values import number_of, seconds_of

Read = Sequence[tuple[int | None, float | None]]
"""Times in microseconds and values; null where one cannot be read."""


def add_series(
    line: int, series: Any, pairs: Sequence[Sequence[object]], read: Read, points: Points
) -> None:
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
        answer = json.loads(stream.read())
        result = answer["data"]["result"]
        matrix = [(one["metric"], _pairs_of(one)) for one in result]
    except (ValueError, RecursionError) as error:
        points.reject(0, UNREADABLE, f"no JSON: {error}")
        return
    except (TypeError, KeyError, AttributeError):
        points.reject(0, UNREADABLE, "no answer of query_range: data.result lacks series")
        return
    for number, (series, pairs) in enumerate(matrix, 1):
        if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            read = [(seconds_of(ts), number_of(value)) for ts, value in pairs]
            add_series(number, series, pairs, read, points)
        else:
            raw = json.dumps(result[number - 1], ensure_ascii=False)
            points.reject(number, UNPARSABLE, raw)
        yield from points.batches()


def _pairs_of(series: Any) -> list[Any]:
    """Return the points of one series of a matrix or a vector."""
    pairs = series["values"] if "values" in series else [series["value"]]
    if not isinstance(pairs, list):
        raise TypeError
    return pairs
