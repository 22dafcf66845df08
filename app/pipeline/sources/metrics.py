"""Metrics of any format as points: what tasks read in Python, each a piece of the inputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.exchange import (
    BLOB_DDL,
    Shares,
    blobs_of,
    exchanged,
    for_each,
    hashed,
    numbers_of,
)
from app.pipeline.sources.codes import Coded, Integers
from app.pipeline.sources.formats import Piece, read_piece
from app.pipeline.sources.inputs import Inputs
from app.pipeline.sources.points import POINT_SCHEMA, UNREADABLE, Points, Rules
from app.pipeline.sources.raw_points import Layout, points_of
from app.pipeline.sources.raw_rows import count_days, layouts_of, read_raw

FINE_COLUMNS: Final = tuple(POINT_SCHEMA.names[:-3])
"""Of a point that counts unless another one does."""

REFUSED_COLUMNS: Final = ("file", "line", "problem", "raw", "n")

_ROWS_AT_ONCE: Final = 500_000
_DAY_US: Final = 86_400_000_000
_BROKEN: Final = (OSError, pa.ArrowException)


def read_points(session: SparkSession, inputs: Inputs, rules: Rules) -> DataFrame:
    """Return the points of the inputs as blobs, in the tasks that they are for.

    All points with the same names, day and broker are in one task; how many tasks there are follows
    from the inputs alone. The tables in the blobs have ``FINE_COLUMNS`` or ``REFUSED_COLUMNS``.

    Args:
        session: Reads.
        inputs: What.
        rules: How points are judged.
    """
    shares = _shares(session, inputs)
    layouts = layouts_of([chunk for chunk in inputs.pieces if chunk.get("types")])
    task = ReadPoints(inputs.pieces, inputs.settings, rules.as_json(), shares, layouts)
    blobs = for_each(session, len(inputs.pieces), task, BLOB_DDL)
    return exchanged(blobs, shares.parts)


def _shares(session: SparkSession, inputs: Inputs) -> Shares:
    """Give days tasks of their own, where footers make it cheap to count the points of each."""
    if not all(chunk.get("types") for chunk in inputs.pieces):
        return Shares.anywhere(inputs.points)
    days: dict[tuple[str, int], int] = {}
    told = for_each(session, len(inputs.pieces), CountDays(inputs.pieces), "day bigint, n bigint")
    for row in told.collect():
        days["", row.day] = days.get(("", row.day), 0) + row.n
    return Shares.of(days)


@dataclass(frozen=True)
class CountDays:
    """Counts the rows of a piece by day; none of a file that is broken."""

    pieces: Sequence[Piece]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number in numbers_of(batches):
            try:
                counts = count_days(self.pieces[number])
            except _BROKEN:
                continue
            columns = (counts.keys(), counts.values())
            yield pa.record_batch(
                [pa.array(column, pa.int64()) for column in columns], ["day", "n"]
            )


@dataclass(frozen=True)
class ReadPoints:
    """Reads and judges pieces, and divides their points.

    Attributes:
        pieces: By number.
        settings: Of the Kafka client.
        rules: How points are judged, as JSON.
        shares: Who gets what.
        layouts: Of the files whose rows are judged by whole columns.
    """

    pieces: Sequence[Piece]
    settings: Mapping[str, str] = field(repr=False)
    rules: Mapping[str, Any]
    shares: Shares
    layouts: Mapping[int, Layout]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        rules = Rules.of(self.rules)
        for number in numbers_of(batches):
            for fine, refused in self._read(self.pieces[number], rules):
                yield from self._divided(fine, refused)

    def _read(self, piece: Piece, rules: Rules) -> Iterator[tuple[pa.Table, pa.Table]]:
        if not piece.get("types"):
            yield from _read_by_row(piece, self.settings, rules)
            return
        rows = read_raw(piece)
        begun = False
        while True:
            try:
                raw = next(rows, None)
            except _BROKEN as error:
                # Read row by row, what comes before the broken place is of use.
                by_row = _read_by_row(piece, self.settings, rules)
                yield from [_broken(piece, rules, error)] if begun else by_row
                return
            if raw is None:
                return
            yield points_of(raw, rules, self.layouts)
            begun = True

    def _divided(self, fine: pa.Table, refused: pa.Table) -> Iterator[pa.RecordBatch]:
        if fine.num_rows:
            yield from blobs_of(fine.select(FINE_COLUMNS), _parts_of(fine, self.shares))
        if refused.num_rows:
            place = hashed([_integers(refused["file"]), _integers(refused["line"])])
            parts = (place % np.uint64(self.shares.parts)).astype(np.int64)
            yield from blobs_of(refused.select(REFUSED_COLUMNS), parts)


def _broken(piece: Piece, rules: Rules, error: Exception) -> tuple[pa.Table, pa.Table]:
    points = Points(piece["file"], rules)
    points.reject(0, UNREADABLE, str(error))
    return _judged(list(points.batches(last=True)))


def _read_by_row(
    piece: Piece, settings: Mapping[str, str], rules: Rules
) -> Iterator[tuple[pa.Table, pa.Table]]:
    given: list[pa.RecordBatch] = []
    for batch in read_piece(piece, settings, Points(piece["file"], rules)):
        given.append(batch)
        if sum(item.num_rows for item in given) >= _ROWS_AT_ONCE:
            yield _judged(given)
            given = []
    if given:
        yield _judged(given)


def _judged(given: Sequence[pa.RecordBatch]) -> tuple[pa.Table, pa.Table]:
    """Tell fine points from others."""
    points = pa.Table.from_batches(given)
    is_fine = points["problem"].is_null()
    fine = points.filter(is_fine)
    for at, name in enumerate(fine.column_names):
        if name in FINE_COLUMNS and pa.types.is_string(fine[name].type):
            fine = fine.set_column(at, name, fine[name].dictionary_encode())
    return fine, points.filter(pc.invert(is_fine))


def _parts_of(fine: pa.Table, shares: Shares) -> Integers:
    days = Coded.of_integers(_integers(fine["ts"].cast(pa.int64())) // _DAY_US)
    names = [Coded.of(fine[name]) for name in ("user", "client_id")]
    hashes = hashed([*names, _integers(fine["broker_id"]), days.numbers()])
    return shares.parts_of([("", day) for day in days.values.to_pylist()], days.codes, hashes)


def _integers(column: pa.ChunkedArray) -> Integers:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False)).astype(np.int64)
