"""CSV: what is written is read back, no cell runs, and no name makes a row of its own."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.text import csv_lines, unguard_cell

BREAKS = ["\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\r", "\n", "\r\n"]
CELLS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    [f"{mark}{text}" for mark in ["'", "''", "\t", *BREAKS] for text in ["", "=1+1", '"', ",a"]]
)


def read(text: str) -> list[list[str]]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    return [[unguard_cell(cell) for cell in row] for row in rows]


@given(st.lists(st.lists(CELLS, min_size=2, max_size=3), max_size=3))
def test_every_cell_comes_back(rows: list[list[str]]):
    assert read("".join(csv_lines(rows))) == rows


@given(CELLS)
def test_no_cell_begins_like_a_formula(cell: str):
    ((first, _),) = csv.reader(io.StringIO("".join(csv_lines([[cell, ""]])), newline=""))
    assert not first.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


@pytest.mark.parametrize("mark", BREAKS)
def test_no_name_makes_a_row_of_its_own(mark: str):
    (line,) = csv_lines([[f"a{mark}admin,1", "b"]])
    assert line == f'"a{mark}admin,1",b\r\n'
