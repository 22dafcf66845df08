"""CSV with a header."""

import csv
from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa

from app.pipeline.ingest.columns import FIELDS, Columns
from app.pipeline.ingest.rows import UNPARSABLE, Labels, Point, Rows
from app.pipeline.ingest.values import number_of, time_of

_LONGEST_RECORD: Final = 100
"""Lines; a quote that is never closed would swallow the rows below it."""


def csv_header(stream: BinaryIO) -> list[str]:
    """Return the names of the columns.

    Raises:
        ValueError: It has no header that can be read.
    """
    _, header, _ = next(_records(stream), (0, None, ""))
    if not header or not all(name.isprintable() for name in header):
        message = "no header"
        raise ValueError(message)
    return header


def read_csv(stream: BinaryIO, columns: Columns, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Read the rows below the header; a name may hold line breaks, where it is quoted."""
    records = _records(stream)
    header = next(records)[1] or []
    indexes = [header.index(columns[field] or "") if columns[field] else None for field in FIELDS]
    for line, cells, raw in records:
        if cells is None or len(cells) != len(header):
            rows.reject(line, UNPARSABLE, raw)
        else:
            ts, value, *names = ["" if index is None else cells[index] for index in indexes]
            rows.add(line, Labels(*names), Point(time_of(ts), number_of(value), raw))
        yield from rows.batches()


class _Lines:
    """Lines that can be given back.

    Attributes:
        taken: Since it was emptied last.
        number: Of the last line taken.
    """

    def __init__(self, stream: BinaryIO) -> None:
        # What is no UTF-8 becomes lone surrogates, which no name may have.
        self._text = (
            line.decode("utf-8" if number else "utf-8-sig", "surrogateescape")
            for number, line in enumerate(stream)
        )
        self._back: list[str] = []
        self.taken: list[str] = []
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) == _LONGEST_RECORD:
            message = "a quote is not closed"
            raise csv.Error(message)
        line = self._back.pop() if self._back else next(self._text)
        self.taken.append(line)
        self.number += 1
        return line

    def give_back(self) -> None:
        """Keep the first line taken alone."""
        self._back += reversed(self.taken[1:])
        self.number -= len(self.taken) - 1
        del self.taken[1:]


def _records(stream: BinaryIO) -> Iterator[tuple[int, list[str] | None, str]]:
    """Yield the first line's number, the cells (null where it is no CSV) and the text."""
    lines = _Lines(stream)
    reader = csv.reader(lines, strict=True)
    while True:
        lines.taken.clear()
        cells: list[str] | None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            lines.give_back()
            reader = csv.reader(lines, strict=True)
            cells = None
        if cells != []:
            first = lines.number - len(lines.taken) + 1
            yield first, cells, "".join(lines.taken).rstrip("\r\n")
