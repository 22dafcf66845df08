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
from app.pipeline.lake import Lake, partitions_of
from app.pipeline.partitions import Partition, days_of
from app.pipeline.results import Hours
from app.pipeline.tables import BUCKET_HOUR, BY_DAY, THROTTLE_INCIDENT
from app.pipeline.usage.incidents import (
    HOUR_COLUMNS,
    VIOLATIONS,
    find_stretches,
    last_minutes,
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

    def days(self) -> Iterator[Day]:
        """Yield the days of their minutes."""
        return self.start.through(self.end)

    def days_behind(self) -> Iterator[Day]:
        """Yield the days behind them in which they may go on."""
        return self.start._replace(number=self.end + 1).through(self.last)


class Stretches(NamedTuple):
    """What was found.

    Attributes:
        rows: As ``find_stretches`` returns them; whole where they begin on ``about``.
        ends: As ``last_minutes`` returns them, of all days that were read.
        about: The days whose incidents are to be replaced.
    """

    rows: pa.Table
    ends: Mapping[tuple[str, int], int]
    about: Sequence[Partition]
    read: Sequence[Partition]


def stretches_around(hours: Hours, out: Lake, days: Sequence[Partition], gap: int) -> Stretches:
    """Find the stretches of days, as a whole.

    ``out`` has the incidents that were found before. A run is about ``days``.
    """
    own = {Day.of(day) for day in days}
    befores = _of(hours.last_before(day.partition) for day in own if day.plus(-1) not in own)
    read = own | befores
    read |= _behind(out, own, read)
    while True:
        violating = _violating(hours, _partitions(read))
        found, ends = find_stretches(violating, gap), last_minutes(violating)
        spans = _spans_of(found, ends, gap)
        about = _replaced(spans, own, befores)
        about |= _went_on(out, about, own)
        wanted = {
            day for span in spans if span.start in about for day in span.first.through(span.last)
        }
        more = _of([hours.having(_partitions((wanted | about) - read))])
        more |= _behind(out, about, read) - read
        if not more:
            return Stretches(found, ends, _partitions(about), _partitions(read))
        read |= more


def _violating(hours: Hours, days: Sequence[Partition]) -> pa.Table:
    hours.remember(days)
    found = partitions_of(hours.lakes, BUCKET_HOUR, days)
    columns = Columns(BUCKET_HOUR, HOUR_COLUMNS, divided_by="bucket_id")

    reading = Reading([columns], _BYTES_OF_SHARE, BY_DAY)
    made = by_partition(hours.lakes, reading, found, lambda _, rows: violating_minutes(rows))
    return made.rows(VIOLATIONS).toArrow()


def _behind(out: Lake, days: AbstractSet[Day], read: AbstractSet[Day]) -> set[Day]:
    """Return the days behind days that say whether their incidents have ended.

    Only what is in --out says so: --to leaves out what is behind it.
    """
    return _of(_first_behind(out, day) for day in days if day.plus(1) not in read)


def _first_behind(out: Lake, day: Day) -> list[Partition]:
    """Return the first day behind one that has hours, if there is one within a month."""
    for numbers in (range(1, 2), range(2, _MONTH + 1)):
        days = [day.plus(number).partition for number in numbers]
        if found := days_of(partitions_of([out], BUCKET_HOUR, days)):
            return found[:1]
    return []


def _replaced(spans: Iterable[Span], own: AbstractSet[Day], befores: AbstractSet[Day]) -> set[Day]:
    """Return the days of a run, and those on which incidents begin that it may have changed."""
    replaced = set(own)
    for span in spans:
        if any(day in own for day in span.days()):
            # Of what is one stretch now, others may have begun on each of these days.
            replaced |= set(span.days())
        elif any(day in own for day in span.days_behind()):
            replaced.add(span.start)
        elif span.is_at_end and span.start._replace(number=span.end) in befores:
            # It was open until there were later minutes.
            replaced.add(span.start)
    return replaced


def _went_on(out: Lake, days: AbstractSet[Day], own: AbstractSet[Day]) -> set[Day]:
    """Return the days of the incidents that were found before, and touched days of a run."""
    if not out.has(THROTTLE_INCIDENT):
        return set()
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
