"""What goes to the screen: colours where they are wanted, aligned columns, signs of life."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from app.client.entities import visible

_COLOURS: Final = {"red": 31, "green": 32, "yellow": 33, "bold": 1, "dim": 2}
_PROGRESS_AFTER_S: Final = 1.0
_PROGRESS_EVERY_S: Final = 0.5


@dataclass(frozen=True)
class Style:
    """Colours, or none: as ``--color`` says, else on a terminal unless ``NO_COLOR`` is set.

    Source: no-color.org.
    """

    coloured: bool

    @classmethod
    def of(cls, stream: TextIO, wish: str) -> "Style":
        """Decide for one stream; ``wish`` is ``auto``, ``always`` or ``never``."""
        if wish != "auto":
            return cls(wish == "always")
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return cls(stream.isatty() and not plain)

    def paint(self, text: str, colour: str | None) -> str:
        """Return the text in a colour, if colours are on."""
        if colour is None or not self.coloured:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns, two blanks apart; no blanks at the end.

    Args:
        rows: Equally long.
        right: The columns that are aligned to the right.
    """
    if not rows:
        return []
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def safe_lines(text: str) -> str:
    """Return text of others in which only line ends, and no other controls, are left."""
    return "\n".join(visible(line) for line in text.splitlines())


class Progress:
    """Says on a terminal what takes long; a pipe gets nothing."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._next = time.monotonic() + _PROGRESS_AFTER_S
        self._shown = False

    def tell(self, done: int, total: int | None = None) -> None:
        """Show how far it is, at most twice a second."""
        now = time.monotonic()
        if now < self._next or not self._stream.isatty():
            return
        self._next = now + _PROGRESS_EVERY_S
        self._shown = True
        of = "" if total is None else f" of {total:,}"
        self._stream.write(f"\r\x1b[K{self._what}: {done:,}{of}")
        self._stream.flush()

    def end(self) -> None:
        """Take the line away again."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
