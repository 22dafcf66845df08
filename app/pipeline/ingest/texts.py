"""Columns of texts as numbers of few different ones, each of which is looked at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.usage.measures import Numbers

_FEW: Final = 2**22


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts.

    Attributes:
        codes: The number of each row's text.
        values: The different texts; null is none.
    """

    codes: Numbers
    values: Sequence[str | None]

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> Self:
        """Read a column of any type; a null is '', and bytes that are no UTF-8 are none."""
        encoded = _encoded(column)
        values = [_text(value) for value in _values(encoded.dictionary)]
        codes = encoded.indices
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


def pairs(first: Numbers, others: Numbers, number: int) -> tuple[Numbers, Numbers]:
    """Return the number of each row's pair, and the pairs as ``first * number + other``, in order.

    Args:
        first: Numbers from 0 on.
        others: Numbers from 0 on, below ``number``.
        number: How many others there may be.
    """
    both = first * number + others
    most = int(both.max(initial=0)) + 1
    if most > _FEW:
        return ranked(both)
    is_there = np.zeros(most, bool)
    is_there[both] = True
    ranks: Numbers = np.cumsum(is_there) - 1
    return ranks[both], np.flatnonzero(is_there)


def ranked(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rank of each number among the different ones, and these in order."""
    encoded = pa.array(numbers).dictionary_encode()
    values = encoded.dictionary.to_numpy()
    order = np.argsort(values)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.to_numpy()], values[order]


def _encoded(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        if not column.num_chunks:
            return pa.array([], pa.string()).dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    return column


def _values(dictionary: pa.Array) -> list[Any]:
    """Return values; texts as bytes, which may be no UTF-8."""
    if pa.types.is_string(dictionary.type) or pa.types.is_large_string(dictionary.type):
        dictionary = dictionary.cast(pa.large_binary())
    values: list[Any] = dictionary.to_pylist()
    return values


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
