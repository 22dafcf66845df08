"""Columns of few different values as whole numbers, which numpy sorts and compares fast."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MOST: Final = 2**62
_CLOSE: Final = 100_000


@dataclass(frozen=True, slots=True)
class Coded:
    """A column without nulls.

    Attributes:
        codes: For each row the place of its value.
        values: In ascending order, text by its bytes, so that codes sort as values do.
    """

    codes: Integers
    values: pa.Array

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Self:
        """Number the values of a column."""
        encoded = in_one_piece(column).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return cls._sorted(codes, encoded.dictionary)

    @classmethod
    def of_names(cls, column: pa.Array | pa.ChunkedArray) -> Self:
        """Number texts by their bytes, null as b'': they may be no UTF-8."""
        encoded = in_one_piece(column).dictionary_encode()
        values = encoded.dictionary.cast(pa.binary())
        indices = encoded.indices
        if indices.null_count:
            # That b'' may then have two codes; whoever reads the values makes one of them.
            indices = indices.fill_null(len(values))
            values = pa.concat_arrays([values, pa.array([b""])])
        return cls._sorted(indices.to_numpy(zero_copy_only=False).astype(np.int64), values)

    @classmethod
    def of_integers(cls, column: Integers) -> Self:
        """Number whole numbers; where they lie close by their distance, which spares a sort."""
        least = int(column.min()) if len(column) else 0
        most = int(column.max()) if len(column) else 0
        if most - least > _CLOSE:
            values, codes = np.unique(column, return_inverse=True)
            return cls(codes, pa.array(values))
        return cls(column - least, pa.array(range(least, most + 1), pa.int64()))

    @classmethod
    def _sorted(cls, codes: Integers, values: pa.Array) -> Self:
        order = pc.sort_indices(values)
        rank = np.empty(len(values), np.int64)
        rank[order.to_numpy()] = np.arange(len(values))
        return cls(rank[codes], values.take(order))

    def __len__(self) -> int:
        """Return how many different values there may be."""
        return len(self.values)

    def mapped(self, change: Callable[[Any], Any], kind: pa.DataType) -> Self:
        """Change each value, none of them to null; several may become one."""
        changed = Coded.of(pa.array([change(value) for value in self.values.to_pylist()], kind))
        return type(self)(changed.codes[self.codes], changed.values)

    def chosen(self, rows: Any) -> Self:
        """Return some of the rows."""
        return type(self)(self.codes[rows], self.values)

    def encoded(self) -> pa.Array:
        """Return an Arrow column with a dictionary."""
        return pa.DictionaryArray.from_arrays(pa.array(self.codes.astype(np.int32)), self.values)

    def numbers(self) -> Integers:
        """Return the rows of a column of whole numbers."""
        known: Integers = self.values.to_numpy()[self.codes]
        return known


def in_one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column with one dictionary, if it has any."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
        column = column.unify_dictionaries()
    return column.combine_chunks()


def packed(columns: Sequence[tuple[Integers, int]]) -> Integers:
    """Return one number for each row that sorts as its columns do.

    Args:
        columns: Numbers from 0 on, and a number above them all.
    """
    total, size = columns[0]
    for codes, count in columns[1:]:
        if size * count > _MOST:
            values, total = np.unique(total, return_inverse=True)
            size = len(values)
        total = total * count + codes
        size *= count
    return total


def numbered(codes: Integers, size: int) -> tuple[Integers, Integers]:
    """Return the codes that occur, in order, and for each row the place of its own among them.

    Args:
        codes: Numbers from 0 on.
        size: A number above them all; where it is small, nothing is sorted.
    """
    if size > max(len(codes), _CLOSE):
        occur, places = np.unique(codes, return_inverse=True)
        return occur, places
    occurs = np.zeros(size, np.bool_)
    occurs[codes] = True
    place_of = np.cumsum(occurs) - 1
    return np.flatnonzero(occurs), place_of[codes]


def begins(ordered: Integers) -> Flags:
    """Tell which elements differ from the one before."""
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def in_order(keys: Integers, ties: Sequence[npt.NDArray[Any]]) -> Integers:
    """Return the order of rows by a key, then by others; the first of ``ties`` decides first.

    Keys are mostly different, so that only those rows are sorted by the rest that share theirs.
    """
    order = np.argsort(keys)
    ordered = keys[order]
    first = begins(ordered)
    shared = ~first
    shared[:-1] |= ~first[1:]
    places = np.flatnonzero(shared)
    if len(places):
        rows = order[places]
        order[places] = rows[np.lexsort((*(ty[rows] for ty in reversed(ties)), keys[rows]))]
    return order
