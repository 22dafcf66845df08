"""What a task of ``utilization`` does: sum up days of buckets with numpy, and write them.

All minutes of a bucket's day are in one task.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from app.pipeline.exchange import gathered, numbers_of
from app.pipeline.jobs.utilization_bins import Bins
from app.pipeline.jobs.utilization_days import Days, histogram
from app.pipeline.jobs.utilization_minutes import BucketMinutes, Expected
from app.pipeline.sinks.sorted_files import write_day
from app.pipeline.sources.codes import Coded
from app.pipeline.sources.table_pieces import array_of
from app.pipeline.tables import UTILIZATION_DAILY, UTILIZATION_HIST, Table

TOLD_DDL: Final = "daily bigint, hist bigint, minutes bigint, over bigint"
"""Rows of both tables; minutes in, and days of a bucket on a broker over its limit."""


@dataclass(frozen=True)
class Sum:
    """Sums up and writes.

    Attributes:
        place: The folder above both tables.
        expected: Minutes in which brokers were heard of.
    """

    place: str
    expected: Expected

    def day(self, minutes: pa.Table, day: tuple[str, int], number: int) -> pa.RecordBatch:
        """Write the day of a cluster's buckets, and tell the columns of ``TOLD_DDL``."""
        bins = Bins.of(minutes)
        days, hist = Days.of(bins, day, self.expected), histogram(bins)
        written: tuple[tuple[pa.Table, Table], ...] = (
            (hist, UTILIZATION_HIST),
            (days.rows, UTILIZATION_DAILY),
        )
        for rows, table in written:
            write_day(rows, table, f"{self.place}/{table.name}", day, number)
        told = (days.rows.num_rows, hist.num_rows, minutes.num_rows, days.over)
        names = ("daily", "hist", "minutes", "over")
        return pa.record_batch([pa.array([item], pa.int64()) for item in told], names)


@dataclass(frozen=True)
class OfFiles:
    """The work of a task where each file has all of the days of its buckets."""

    minutes: BucketMinutes
    sums: Sum

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number in numbers_of(batches):
            rows = self.minutes.read(number)
            if rows.num_rows:
                yield self.sums.day(rows, self.minutes.pieces[number].place, number)


@dataclass(frozen=True)
class OfBlobs:
    """The work of a task where the minutes of a bucket were brought together first."""

    sums: Sum

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number, tables in gathered(batches):
            minutes = pa.concat_tables(tables).unify_dictionaries()
            clusters, days = Coded.of(minutes["cluster_id"]), array_of(minutes["day"])
            place = clusters.codes * (int(days.max()) + 1) + days
            for item in np.unique(place).tolist():
                rows = minutes.filter(pa.array(place == item))
                day = (rows["cluster_id"][0].as_py(), rows["day"][0].as_py())
                yield self.sums.day(rows, day, number)
