"""Columns of texts as numbers of few different texts, and the times and numbers in texts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.usage.measures import Numbers, ranks_and_values

FIRST_US: Final = 0
END_US: Final = 253_402_214_400_000_000
"""Times are from 1970 on and before the last day of the year 9999: the end of each day is a time,
and what lies outside comes from a clock that was never set, or means "never"."""

_FEW: Final = 2**22
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALES: Final = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))


def time_of(text: str) -> int | None:
    """Return a time in microseconds of the epoch, or null where it is none.

    A text is RFC 3339 (without an offset it is UTC), or a number of seconds, milliseconds,
    microseconds or nanoseconds of the epoch, distinguished by their size.
    """
    # Nanoseconds are too large for a float.
    is_short = len(text) < 20 and text.isascii() and text.isdecimal()
    number = int(text) if is_short else number_of(text)
    if number is None:
        return _time_of_text(text)
    for below, scale in _SCALES:
        if abs(number) < below:
            return _within(number, scale)
    return _within(number / 1_000, 1) if abs(number) < END_US * 1_000 else None


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
    return _within(past // timedelta.resolution, 1)


def _within(number: float, scale: int) -> int | None:
    if not math.isfinite(number):
        return None
    time = round(number * scale)
    return time if FIRST_US <= time < END_US else None


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: the number of each row's text, and the different texts; null is none."""

    codes: Numbers
    values: Sequence[str | None]

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> Self:
        """Read a column of any type; a null is '', and bytes that are no UTF-8 are none."""
        encoded = _encoded(column)
        dictionary, codes = encoded.dictionary, encoded.indices
        if pa.types.is_string(dictionary.type) or pa.types.is_large_string(dictionary.type):
            dictionary = dictionary.cast(pa.large_binary())
        values = [_text(value) for value in dictionary.to_pylist()]
        if codes.null_count:
            codes = pc.fill_null(codes.cast(pa.int64()), len(values))
            values.append("")
        return cls(codes.to_numpy().astype(np.int64), values).distinct()

    @classmethod
    def same(cls, value: str, number: int) -> Self:
        """Return a column of one text."""
        return cls(np.zeros(number, np.int64), [value])

    def map(self, change: Callable[[str], str | None]) -> "Texts":
        """Return what becomes of the texts; none stays none."""
        values = [None if value is None else change(value) for value in self.values]
        return Texts(self.codes, values).distinct()

    def distinct(self) -> Self:
        """Return the same column with each text once."""
        numbers: dict[str | None, int] = {}
        for value in self.values:
            numbers.setdefault(value, len(numbers))
        if len(numbers) == len(self.values):
            return self
        ranks = np.array([numbers[value] for value in self.values], np.int64)
        return type(self)(ranks[self.codes], list(numbers))

    def look_up(self, look_up: Callable[[str | None], Any], kind: Any) -> Numbers:
        """Return a number for each row, by its text."""
        found = np.array([look_up(value) for value in self.values], kind)
        numbers: Numbers = found[self.codes]
        return numbers

    def read(self, read: Callable[[str], float | None], kind: pa.DataType) -> pa.Array:
        """Return what each row's text says, null where it is none."""
        found = pa.array([None if text is None else read(text) for text in self.values], kind)
        return found.take(pa.array(self.codes))

    def equals(self, text: str) -> Numbers:
        """Tell which rows have a text."""
        return self.look_up(lambda value: value == text, bool)

    def is_none(self) -> Numbers:
        """Tell which rows have none."""
        return self.look_up(lambda value: value is None, bool)

    def array(self, mask: Numbers | None = None) -> pa.Array:
        """Return a dictionary array; masked rows are null."""
        none = self.is_none() if None in self.values else np.zeros(len(self.codes), bool)
        hidden = none if mask is None else none | mask
        indices = pa.array(self.codes.astype(np.int32), mask=hidden if hidden.any() else None)
        values = pa.array(["" if value is None else value for value in self.values], pa.string())
        return pa.DictionaryArray.from_arrays(indices, values)


def combined(*columns: tuple[Numbers, int]) -> tuple[Numbers, list[Numbers]]:
    """Return the rank of each row's combination of numbers, and the combinations in order.

    Each column is numbers from 0 on, and how many different ones there may be.
    """
    (ranks, most), *others = columns
    found = [np.arange(most)]
    for numbers, most in others:
        ranks, different = ranked(ranks * most + numbers)
        former, new = np.divmod(different, most)
        found = [*(each[former] for each in found), new]
    return ranks, found


def pairs_of_texts(
    first: Texts, others: Texts
) -> tuple[Numbers, list[tuple[str | None, str | None]]]:
    """Return the number of each row's pair of texts, and the pairs."""
    codes, both = combined(*((each.codes, len(each.values)) for each in (first, others)))
    numbers = zip(*(each.tolist() for each in both), strict=True)
    return codes, [(first.values[own], others.values[other]) for own, other in numbers]


def ranked(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rank of each number among the different ones, and these in order."""
    if numbers.min(initial=0) >= 0 and numbers.max(initial=0) < _FEW:
        is_there = np.zeros(numbers.max(initial=0) + 1, bool)
        is_there[numbers] = True
        return (np.cumsum(is_there) - 1)[numbers], np.flatnonzero(is_there)
    ranks, values = ranks_and_values(pa.array(numbers))
    return ranks, values.to_numpy()


def numbers_of(column: pa.ChunkedArray | pa.Array) -> pa.Array | pa.ChunkedArray:
    """Return the numbers in a column of any type, null where there is none."""
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_string(kind):
        try:
            # Of most texts Arrow reads all, and a hundred times faster.
            return column.cast(pa.float64())
        except pa.ArrowException:
            pass
    return Texts.of(column).read(number_of, pa.float64())


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def decoded(texts: pa.ChunkedArray) -> list[str]:
    """Return texts, with what is no UTF-8 escaped; null as JSON has it."""
    values = texts.cast(pa.large_binary()).to_pylist()
    return [
        "null" if value is None else value.decode(errors="backslashreplace") for value in values
    ]


def _encoded(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return whole(column.unify_dictionaries()) if isinstance(column, pa.ChunkedArray) else column


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
