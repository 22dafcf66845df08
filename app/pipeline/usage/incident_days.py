"""Which days a run of incidents reads and writes: incidents go on across midnight.

A run is about some days. An incident that begins before them and goes on in them is of a day before
them, and one that goes on behind them has minutes that they lack. So days beside them are read as
far as such incidents reach, and no others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, timedelta
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from app.pipeline.by_partition import Columns, Reading, by_partition, columns_of
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition
from app.pipeline.results import Hours
from app.pipeline.tables import BUCKET_HOUR, BY_DAY, THROTTLE_INCIDENT
from app.pipeline.usage.incidents import (
    HOUR_COLUMNS,
    VIOLATIONS,
    find_stretches,
    last_minutes,
    status_of,
    violating_minutes,
)

_EPOCH: Final = date(1970, 1, 1)
_DAY: Final = 1440
_MINUTE_US: Final = 60_000_000
_MONTH: Final = 31
_BYTES_OF_SHARE: Final = 60_000_000
"""Files with so many bytes have about a million hours of buckets."""


class Day(NamedTuple):
    """A day of a cluster, by its number since 1970."""

    cluster_id: str
    number: int

    @classmethod
    def of(cls, partition: Partition) -> Self:
        """Read a partition."""
        return cls(partition["cluster_id"], (date.fromisoformat(partition["dt"]) - _EPOCH).days)

    @property
    def partition(self) -> Partition:
        """As tables have it."""
        return {"cluster_id": self.cluster_id, "dt": f"{_EPOCH + timedelta(self.number)}"}

    def plus(self, days: int) -> Self:
        """Return the day so many days later."""
        return self._replace(number=self.number + days)

    def through(self, last: int) -> Iterator[Self]:
        """Yield it and the following days."""
        return (self._replace(number=number) for number in range(self.number, last + 1))


class Span(NamedTuple):
    """The days of some stretches.

    Attributes:
        first: The day in which a violating minute may be that would join them.
        start: The day of their start.
        end: The number of the day of their last minute.
        last: That of the last day in which a violating minute may be that would join them.
        is_at_end: Whether their cluster has no later minute on the day of their last one.
    """

    first: Day
    start: Day
    end: int
    last: int
    is_at_end: bool

    def touches(self, own: AbstractSet[Day], befores: AbstractSet[Day]) -> bool:
        """Tell whether days of a run may have changed them.

        They go on there, or were open at the end of the day before, as there was no later minute.
        """
        was_open = self.is_at_end and self.start._replace(number=self.end) in befores
        return was_open or not own.isdisjoint(self.start.through(self.last))


def stretches_around(
    hours: Hours, out: Lake, days: Sequence[Partition], gap: int
) -> tuple[pa.Table, Sequence[Partition], Sequence[Partition]]:
    """Find the stretches that days have changed, as a whole.

    Returned are the stretches as ``find_stretches`` has them, with their status, the days on which
    they begin, of which all incidents are to be replaced, and the days that were read.

    Args:
        out: Has the incidents that were found before.
        days: Which the run is about.
    """
    own = {Day.of(day) for day in days}
    befores = _of(hours.last_before(day.partition) for day in own if day.plus(-1) not in own)
    read = own | befores
    while True:
        violating = _violating(hours, _partitions(read))
        found, ends = find_stretches(violating, gap), last_minutes(violating)
        spans = _spans_of(found, ends, gap)
        # Of what is one stretch now, others may have begun on each of its days.
        changed = (span.start.through(span.end) for span in spans if span.touches(own, befores))
        about = own.union(*changed)
        about |= _went_on(out, about, own)
        whole = (span.first.through(span.last) for span in spans if span.start in about)
        more = _of([hours.having(_partitions(about.union(*whole) - read))])
        if not more:
            break
        read |= more
    behind = {day.cluster_id: day.plus(1) for day in sorted(read)}
    ends |= {day: day.number * _DAY for day in behind.values() if _has_hours_from(out, day)}
    rows = found.append_column("status", status_of(found, ends))
    starts = map(Day, rows["cluster_id"].to_pylist(), rows["dt"].cast(pa.int32()).to_pylist())
    rows = rows.filter(pa.array([start in about for start in starts], pa.bool_()))
    return rows, _partitions(about), _partitions(read)


def _violating(hours: Hours, days: Sequence[Partition]) -> pa.Table:
    hours.remember(days)
    columns = Columns(BUCKET_HOUR, HOUR_COLUMNS, divided_by="bucket_id")
    reading = Reading([columns], _BYTES_OF_SHARE, BY_DAY)
    made = by_partition(hours.lakes, reading, days, lambda _, rows: violating_minutes(rows))
    return made.rows(VIOLATIONS).toArrow()


def _has_hours_from(out: Lake, day: Day) -> bool:
    """Tell whether there are hours within a month, so that incidents before a day have ended.

    Only what is in --out says so: --to leaves out what is behind it.
    """
    days = [day.plus(number).partition for number in range(_MONTH)]
    return bool(out.partitions(BUCKET_HOUR, days))


def _went_on(out: Lake, days: AbstractSet[Day], own: AbstractSet[Day]) -> set[Day]:
    """Return the days of the incidents that were found before, and touched days of a run."""
    columns = Columns(THROTTLE_INCIDENT, ("cluster_id", "dt", "end"))
    found = columns_of([out], columns, _partitions(days))
    start, end = found["dt"].cast(pa.int32()), found["end"].cast(pa.int64())
    final = (end.to_numpy() // _MINUTE_US - 1) // _DAY
    both = set(zip(found["cluster_id"].to_pylist(), start.to_pylist(), final.tolist(), strict=True))
    went_on = [[*Day(name, number).through(last)] for name, number, last in both]
    return {day for each in went_on if not own.isdisjoint(each) for day in each}


def _spans_of(stretches: pa.Table, ends: Mapping[tuple[str, int], int], gap: int) -> set[Span]:
    start, end = (
        stretches[name].cast(pa.int64()).to_numpy() // _MINUTE_US for name in ("start", "end")
    )
    final = end - 1
    days = [(times // _DAY).tolist() for times in (start - gap, start, final, final + gap)]
    clusters = stretches["cluster_id"].to_pylist()
    last = [ends[each] for each in zip(clusters, days[2], strict=True)]
    found = set(zip(clusters, *days, (final >= np.array(last)).tolist(), strict=True))
    return {
        Span(Day(cluster, first), Day(cluster, begin), *of) for cluster, first, begin, *of in found
    }


def _of(found: Iterable[Sequence[Partition]]) -> set[Day]:
    return {Day.of(partition) for partitions in found for partition in partitions}


def _partitions(days: Iterable[Day]) -> list[Partition]:
    return [day.partition for day in sorted(days)]
