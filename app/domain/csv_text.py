r"""CSV as every writer and reader of this project has it: RFC 4180, guarded against formulas.

A row ends with ``\r\n``; a cell with a comma, a quote, ``\r`` or ``\n`` stands in quotes. Nothing
else ends a row: a name may hold U+000B, U+0085 or U+2028.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

FORMULA_MARKS: Final = tuple("=+-@'\t\r\n\uff1d\uff0b\uff0d\uff20")
"""A cell that begins with one of these gets one leading ``'``, which a reader takes off again.

Spreadsheets skip line ends before a formula, and some take the full-width forms of ``= + - @`` for
them. Source: OWASP, CSV Injection. Nothing is lost: whatever begins with ``'`` has one
more than it had.
"""

_GUARD: Final = "'"


def guard_cell(cell: str) -> str:
    """Return a cell that no spreadsheet runs."""
    return f"{_GUARD}{cell}" if cell.startswith(FORMULA_MARKS) else cell


def unguard_cell(cell: str) -> str:
    """Return what a guarded cell stands for."""
    return cell.removeprefix(_GUARD)


class _Line:
    """What ``csv`` writes into: it returns each line, and keeps none."""

    def write(self, line: str) -> str:
        return line


def csv_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    r"""Yield each row with its ``\r\n``, every cell guarded; a heading is a row, too."""
    write = csv.writer(_Line(), lineterminator="\r\n").writerow
    for row in rows:
        yield write([guard_cell(cell) for cell in row])
