"""Minutes of buckets as tasks of ``utilization`` read them, and when brokers said anything."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from app.pipeline.exchange import Shares, blobs_of, for_each, numbers_of
from app.pipeline.sources.buckets import Scope
from app.pipeline.sources.codes import Integers
from app.pipeline.sources.table_pieces import TablePiece, array_of, micros_of, read_columns
from app.pipeline.tables import BUCKET_MINUTE

Expected = Mapping[tuple[str, int, int | None], int]
"""By cluster, day and broker (null for all): in how many minutes a broker said anything."""

DAY_MINUTES: Final = 1440

_MINUTE_US: Final = 60_000_000
_COLUMNS: Final = (
    *("ts", "broker_id", "key", "bucket_id", "rate_max", "throttle_ms_avg", "throttle_ms_max"),
    *("bytes_est", "limit", "level"),
)
_HEARD_DDL: Final = "cluster_id string, day int, broker_id int, minutes binary"


@dataclass(frozen=True)
class BucketMinutes:
    """Minutes in files.

    Attributes:
        pieces: Of ``BUCKET_MINUTE``, each a whole file.
        scope: Rows outside of its period are left out.
    """

    pieces: Sequence[TablePiece]
    scope: Scope

    @property
    def are_whole(self) -> bool:
        """Whether each file has all of the days of its buckets.

        It has where the file says so of its run, and no day comes from two folders.
        """
        folders: dict[tuple[str, int], set[str]] = {}
        for piece in self.pieces:
            folders.setdefault(piece.place, set()).add(piece.path.rpartition("/")[0])
        alone = all(len(folder) == 1 for folder in folders.values())
        return alone and all(piece.whole for piece in self.pieces)

    def read(self, number: int) -> pa.Table:
        """Return the columns of ``BUCKET_MINUTE`` that days need, and ``minute`` of the day."""
        piece = self.pieces[number]
        rows = read_columns(piece, BUCKET_MINUTE, _COLUMNS, self.scope)
        minute = _minutes(rows, piece).astype(np.int32)
        return rows.drop_columns("ts").append_column("minute", pa.array(minute))


def expected_minutes(session: SparkSession, minutes: BucketMinutes) -> Expected:
    """Count the minutes in which a broker said anything, and those of all brokers together."""
    told = for_each(session, len(minutes.pieces), _Heard(minutes), _HEARD_DDL)
    heard: dict[tuple[str, int, int], int] = {}
    for row in told.collect():
        place = (row.cluster_id, row.day, row.broker_id)
        heard[place] = heard.get(place, 0) | int.from_bytes(row.minutes)
    counts: dict[tuple[str, int, int | None], int] = {}
    for (cluster, day, broker), bits in heard.items():
        counts[cluster, day, broker] = bits.bit_count()
        counts[cluster, day, None] = counts.get((cluster, day, None), 0) + bits.bit_count()
    return counts


@dataclass(frozen=True)
class _Heard:
    """Tells the minutes of each broker, a bit for each."""

    minutes: BucketMinutes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number in numbers_of(batches):
            piece = self.minutes.pieces[number]
            scope = self.minutes.scope
            rows = read_columns(piece, BUCKET_MINUTE, ("ts", "broker_id"), scope)
            if not rows.num_rows:
                continue
            brokers, minutes = array_of(rows["broker_id"]), _minutes(rows, piece)
            ids = np.unique(brokers)
            heard = np.zeros((len(ids), DAY_MINUTES), np.bool_)
            heard[np.searchsorted(ids, brokers), minutes] = True
            yield pa.record_batch(
                [
                    pa.array([piece.cluster] * len(ids)),
                    pa.array([piece.day] * len(ids), pa.int32()),
                    pa.array(ids, pa.int32()),
                    pa.array([np.packbits(item).tobytes() for item in heard], pa.binary()),
                ],
                ["cluster_id", "day", "broker_id", "minutes"],
            )


@dataclass(frozen=True)
class Divide:
    """Hands minutes to those who sum up the days of their buckets.

    Attributes:
        minutes: Whose.
        shares: Who gets what.
    """

    minutes: BucketMinutes
    shares: Shares

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number in numbers_of(batches):
            piece, rows = self.minutes.pieces[number], self.minutes.read(number)
            none = np.zeros(rows.num_rows, np.int32)
            cluster = pa.DictionaryArray.from_arrays(pa.array(none), pa.array([piece.cluster]))
            placed = rows.append_column("cluster_id", cluster).append_column(
                "day", pa.array(none + piece.day, pa.int32())
            )
            buckets = array_of(rows["bucket_id"]).astype(np.uint64)
            codes = none.astype(np.int64)
            yield from blobs_of(placed, self.shares.parts_of([piece.place], codes, buckets))


def _minutes(rows: pa.Table, piece: TablePiece) -> Integers:
    return micros_of(rows["ts"]) // _MINUTE_US - piece.day * DAY_MINUTES
