"""Numbers for values sort as the values do, and rows are put in order as a plain sort does."""

import random

import numpy as np
import pyarrow as pa
import pytest

from app.pipeline.sources.codes import Coded, begins, in_order, numbered, packed


@pytest.mark.parametrize(
    "values", [["b", "", "Zoë", "a", "b", "😀"], [b"\xff", b"a", b"\x00"], [3, -(2**40), 3]]
)
def test_codes_sort_as_values_do(values: list[str]):
    coded = Coded.of(pa.chunked_array([values[:2], values[2:]]))
    known = coded.values.to_pylist()
    assert [known[code] for code in coded.codes] == values
    assert known == sorted(set(values))
    assert coded.encoded().to_pylist() == values


@pytest.mark.parametrize("values", [[5, 3, 5], [0, 2**31 - 1], [-(2**63), 2**62, 7], []])
def test_whole_numbers_are_numbered_however_far_apart(values: list[int]):
    coded = Coded.of_integers(np.array(values, np.int64))
    known = coded.values.to_pylist()
    assert [known[code] for code in coded.codes] == values
    assert known == sorted(known)
    assert len(known) <= 100_001


def test_two_values_may_become_one():
    coded = Coded.of(pa.array(["a", "", "b", ""])).mapped(lambda item: item or "b", pa.string())
    assert coded.encoded().to_pylist() == ["a", "b", "b", "b"]
    assert coded.values.to_pylist() == ["a", "b"]


@pytest.mark.parametrize("size", [8, 2**40])
@pytest.mark.parametrize("codes", [[7, 2, 7, 0], []])
def test_codes_that_occur_are_numbered_in_order(codes: list[int], size: int):
    occur, places = numbered(np.array(codes, np.int64), size)
    assert occur.tolist() == sorted(set(codes))
    assert occur[places].tolist() == codes


@pytest.mark.parametrize("size", [3, 2**20, 2**31])
def test_packed_columns_sort_as_the_columns_do(size: int):
    drawing = random.Random(size)
    rows = [tuple(drawing.randrange(size) for _ in range(4)) for _ in range(200)]
    columns = [(np.array(column, np.int64), size) for column in zip(*rows, strict=True)]
    order = np.argsort(packed(columns), kind="stable")
    assert [rows[at] for at in order] == sorted(rows)


@pytest.mark.parametrize("different", [1, 5, 10_000])
def test_rows_with_the_same_key_are_ordered_by_the_rest(different: int):
    drawing = random.Random(different)
    rows = [
        (drawing.randrange(different), drawing.randrange(3), drawing.random()) for _ in range(300)
    ]
    keys, first, second = (np.array(column) for column in zip(*rows, strict=True))
    order = in_order(keys, [first, second])
    assert [rows[at] for at in order] == sorted(rows)


def test_where_values_change_something_begins():
    assert begins(np.array([1, 1, 2, 1])).tolist() == [True, False, True, True]
    assert begins(np.array([], np.int64)).tolist() == []
