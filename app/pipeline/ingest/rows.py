"""Points of a text format, as a task collects them for Spark."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

UNREADABLE: Final = "unreadable-file"
UNPARSABLE: Final = "unparsable"

ROWS_DDL: Final = """
    file int, line bigint, position bigint, ts bigint, value double, cluster string, broker string,
    instance string, metric string, resource string, user string, client_id string, text string,
    series string, problem string"""
"""A point as its input has it. ``file`` is the number of the input, ``line`` where the point stands
in it, ``position`` its number there; ``ts`` are microseconds of the epoch, null where no time can
be read, as is ``value``; ``text`` is the point's text, ``series`` that of its labels where many
points share them. One with a ``problem`` is refused whatever the rest says."""

_TEXTS: Final = ("cluster", "broker", "instance", "metric", "resource", "user", "client_id")
_SCHEMA: Final = pa.schema(
    [
        *(("file", pa.int32()), ("line", pa.int64()), ("position", pa.int64())),
        *(("ts", pa.int64()), ("value", pa.float64())),
        *((name, pa.string()) for name in (*_TEXTS, "text", "series", "problem")),
    ]
)
_ROWS_OF_BATCH: Final = 20_000


class Labels(NamedTuple):
    """What names a series, as the input has it; '' where it says nothing."""

    cluster: str = ""
    broker: str = ""
    instance: str = ""
    metric: str = ""
    resource: str = ""
    user: str = ""
    client_id: str = ""


class Point(NamedTuple):
    """A time in microseconds, a value, null where they cannot be read, and their text.

    ``series`` is the text of the labels where many points share them.
    """

    ts: int | None
    value: float | None
    text: str
    series: str | None = None


_NOTHING: Final = Labels()


class Rows:
    """Collects the points of one input; ``batches`` hands them over."""

    def __init__(self, file: int, first: int = 0) -> None:
        """Take the input's number, and the position of the first point."""
        self._file = file
        self._position = first
        self._rows: list[tuple[object, ...]] = []

    def add(self, line: int, labels: Labels | None, point: Point) -> None:
        """Add a point; without labels it is none."""
        if labels is None:
            self._append(line, point._replace(text=point.series or point.text), UNPARSABLE)
        else:
            self._append(line, point, None, labels)

    def reject(self, line: int, problem: str, text: str) -> None:
        """Add what is no point."""
        self._append(line, Point(None, None, text), problem)

    def _append(
        self, line: int, point: Point, problem: str | None, labels: Labels = _NOTHING
    ) -> None:
        ts, value, text, series = point
        at = (self._file, line, self._position, ts, value)
        self._rows.append((*at, *labels, text, series, problem))
        self._position += 1

    def batches(self, *, last: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield what has been collected, once it is enough; at last all of it."""
        if self._rows and (last or len(self._rows) >= _ROWS_OF_BATCH):
            columns = zip(*self._rows, strict=True)
            arrays = [_array(column, each) for column, each in zip(columns, _SCHEMA, strict=True)]
            self._rows = []
            yield pa.record_batch(arrays, schema=_SCHEMA)


def _array(column: Sequence[object], field: pa.Field) -> pa.Array:
    try:
        return pa.array(column, field.type)
    except UnicodeEncodeError:
        # Lone surrogates: bytes that are no UTF-8, which no name may have.
        errors = "surrogatepass" if field.name in _TEXTS else "backslashreplace"
        encoded = [item.encode(errors=errors) if isinstance(item, str) else None for item in column]
        return pa.array(encoded, pa.binary()).view(pa.string())
