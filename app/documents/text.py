"""How texts are written: in CSV, in YAML, in columns of a terminal."""

import csv
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from app.domain.entities import escape_of

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
    r"""Yield each row as RFC 4180 has it, every cell guarded; a heading is a row, too.

    A row ends with ``\r\n``; a cell with a comma, a quote, ``\r`` or ``\n`` stands in quotes.
    Nothing else ends a row: a name may hold U+000B, U+0085 or U+2028.
    """
    write = csv.writer(_Line(), lineterminator="\r\n").writerow
    for row in rows:
        yield write([guard_cell(cell) for cell in row])


_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Plain words that YAML 1.1 reads as null or boolean, in any case."""


def yaml_text(text: str, *, ascii_only: bool = False) -> str:
    """Return a text as YAML, such that readers of YAML 1.1 and 1.2 see the same.

    What either could take for something else is quoted; what is not printable is an escape.

    Args:
        text: Any.
        ascii_only: Escape all that is not ASCII, for a terminal that might show it wrongly.
    """
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(_yaml_character(character, ascii_only=ascii_only) for character in text)}"'


def _yaml_character(character: str, *, ascii_only: bool) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable() and (character.isascii() or not ascii_only):
        return character
    return escape_of(character)


def yaml_float(value: float) -> str:
    """Return a float with a point and a signed exponent, as YAML 1.1 wants it."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: a wide letter two, a mark on it none."""
    marks = sum(unicodedata.combining(character) > 0 for character in text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) - marks + wide


def pad(text: str, width: int) -> str:
    """Return a text with blanks behind it up to a width in columns of a terminal."""
    return text + " " * (width - width_of(text))
