"""Points of a text format, as a task collects them for Spark, with the many spellings of times."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALES: Final = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))
FIRST_US: Final = 0
END_US: Final = 253_402_214_400_000_000
"""Times are from 1970 on and before the last day of the year 9999: the end of each day is a time,
and what lies outside comes from a clock that was never set, or means "never"."""

_END_NS: Final = END_US * 1_000


def time_of(value: object) -> int | None:
    """Return a time in microseconds of the epoch, or null where it is none.

    Args:
        value: RFC 3339 (without an offset it is UTC), or a number of seconds, milliseconds,
            microseconds or nanoseconds of the epoch, distinguished by their size.
    """
    if isinstance(value, str):
        number = number_of(value)
        return _time_of_text(value) if number is None else _time_of_number(number)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _time_of_number(value)
    return None


def scaled_time(value: object, unit_us: int) -> int | None:
    """Return a number of units of so many microseconds as a time; null where it is none."""
    number = number_of(value)
    return None if number is None else _within(number, unit_us)


def number_of(value: object) -> float | None:
    """Return a number, also one written as text the way Prometheus does, or null."""
    if isinstance(value, str):
        try:
            return None if "_" in value else float(value)
        except ValueError:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return None


def _time_of_text(text: str) -> int | None:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
    past = zoned - _EPOCH
    return _in_range((past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds)


def _time_of_number(number: float) -> int | None:
    for below, scale in _SCALES:
        if abs(number) < below:
            return _within(number, scale)
    # JSON has whole numbers that are too large for a float.
    return _within(number / 1_000, 1) if abs(number) < _END_NS else None


def _within(number: float, scale: int) -> int | None:
    return _in_range(round(number * scale)) if math.isfinite(number) else None


def _in_range(time: int) -> int | None:
    return time if FIRST_US <= time < END_US else None


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
