"""Which days a run of incidents reads and writes: incidents go on across midnight.

A run is about some days. An incident that begins before them and goes on in them is of a day before
them, and one that goes on behind them has minutes that they lack. So days beside them are read as
far as such incidents reach, and no others.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, timedelta
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.lake import Lake, Partition, days_of, partitions_of
from app.pipeline.local_tables import local_columns
from app.pipeline.results import Hours
from app.pipeline.tables import BUCKET_HOUR, THROTTLE_INCIDENT
from app.pipeline.usage.incidents import find_stretches, last_minutes
from app.pipeline.usage.measures import bit_length

_A_DAY = timedelta(days=1)


class Day(NamedTuple):
    """A day of a cluster."""

    cluster_id: str
    dt: date

    @classmethod
    def of(cls, partition: Partition) -> Self:
        """Read a partition."""
        return cls(partition["cluster_id"], date.fromisoformat(partition["dt"]))

    def plus(self, number: int) -> Self:
        """Return the day so many days later."""
        return self._replace(dt=self.dt + number * _A_DAY)

    def through(self, last: date) -> Iterator[Self]:
        """Yield it and the following days."""
        return (self.plus(number) for number in range((last - self.dt).days + 1))


class Span(NamedTuple):
    """The days of some stretches.

    Attributes:
        cluster_id: Whose.
        first: The day in which a violating minute may be that would join them.
        start: The day of their start.
        end: The day of their last minute.
        last: As ``first``, behind them.
        is_at_end: Whether their cluster has no later minute on the day of their last one.
    """

    cluster_id: str
    first: date
    start: date
    end: date
    last: date
    is_at_end: bool

    def days(self) -> Iterator[Day]:
        """Yield the days of their minutes."""
        return Day(self.cluster_id, self.start).through(self.end)

    def days_around(self) -> Iterator[Day]:
        """Yield the days that say where they begin and end."""
        return Day(self.cluster_id, self.first).through(self.last)

    def days_behind(self) -> Iterator[Day]:
        """Yield the days behind them in which they may go on."""
        return Day(self.cluster_id, self.end + _A_DAY).through(self.last)


class Stretches(NamedTuple):
    """What was found.

    Attributes:
        rows: As ``find_stretches`` returns them, persisted; whole where they begin on ``about``.
        ends: The last minute of each cluster and day that was read, as ``last_minutes`` has it.
        about: The days whose incidents are to be replaced.
        read: All days that were read.
    """

    rows: DataFrame
    ends: DataFrame
    about: Sequence[Partition]
    read: Sequence[Partition]


def stretches_around(hours: Hours, out: Lake, days: Sequence[Partition], gap: int) -> Stretches:
    """Find the stretches of days, as a whole.

    Args:
        hours: Gives the hours of any days.
        out: Has the incidents that were found before.
        days: That a run is about.
        gap: See ``find_stretches``.
    """
    own = {Day.of(day) for day in days}
    befores = _of(hours.last_before(_partition(day)) for day in own if day.plus(-1) not in own)
    read = own | befores
    read |= _behind(out, own, read)
    while True:
        frame, ends = _violations_of(hours, _partitions(read))
        found = find_stretches(frame, gap).persist()
        spans = _spans_of(found, ends, gap)
        about = _replaced(spans, own, befores)
        about |= _went_on(out, about, own)
        wanted = {day for span in spans if _start(span) in about for day in span.days_around()}
        more = _of([hours.having(_partitions((wanted | about) - read))])
        more |= _behind(out, about, read) - read
        if not more:
            return Stretches(found, ends, _partitions(about), _partitions(read))
        found.unpersist()
        read |= more


_READ: Final = (
    *("cluster_id", "dt", "hour", "key", "bucket_id", "broker_id", "present", "violations"),
)


def _violations_of(hours: Hours, days: Sequence[Partition]) -> tuple[DataFrame, DataFrame]:
    """Return the hours with violations at least, and the last minutes of all by cluster and day."""
    hours.remember(days)
    found = partitions_of(hours.lakes, BUCKET_HOUR, days)
    here = local_columns(hours.lakes, BUCKET_HOUR, found, _READ) if found else None
    if here is None or not len(here):
        frame = hours.read(days)
        return frame, last_minutes(frame, "dt")
    session = hours.lakes[0].session
    violating = here.filter(pc.greater(pc.list_value_length(here["violations"]), 0))
    day = here["dt"].cast(pa.int32()).to_numpy().astype(np.int64)
    minute = (day * 24 + here["hour"].to_numpy()) * 60 + bit_length(here["present"].to_numpy()) - 1
    last = pa.array(minute * 60_000_000).cast(pa.timestamp("us", "UTC"))
    ends = here.select(["cluster_id", "dt"]).append_column("last_ts", last)
    ends = ends.group_by(["cluster_id", "dt"]).aggregate([("last_ts", "max")])
    named = ends.select(["cluster_id", "dt", "last_ts_max"])
    # Arrow without rows has no batch that would tell Spark the columns.
    none = hours.lakes[0].nothing(BUCKET_HOUR)
    frame = session.createDataFrame(violating) if len(violating) else none
    return frame, session.createDataFrame(named.rename_columns(["cluster_id", "dt", "last_ts"]))


_MONTH: Final = 31


def _behind(out: Lake, days: AbstractSet[Day], read: AbstractSet[Day]) -> set[Day]:
    """Return the days behind days that say whether their incidents have ended.

    Only what is in --out says so: --to leaves out what is behind it.
    """
    return _of(_first_behind(out, day) for day in days if day.plus(1) not in read)


def _first_behind(out: Lake, day: Day) -> list[Partition]:
    """Return the first day behind one that has hours, if there is one within a month."""
    for numbers in (range(1, 2), range(2, _MONTH + 1)):
        days = [_partition(day.plus(number)) for number in numbers]
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
            replaced.add(_start(span))
        elif span.is_at_end and Day(span.cluster_id, span.end) in befores:
            # It was open until there were later minutes.
            replaced.add(_start(span))
    return replaced


def _went_on(out: Lake, days: AbstractSet[Day], own: AbstractSet[Day]) -> set[Day]:
    """Return the days of the incidents that were found before, and touched days of a run."""
    if not out.has(THROTTLE_INCIDENT):
        return set()
    names = ("cluster_id", "dt", "end")
    here = local_columns([out], THROTTLE_INCIDENT, _partitions(days), names)
    if here is None:
        stored = out.read_in(THROTTLE_INCIDENT, _partitions(days))
        here = stored.select(*names).distinct().toArrow()
    found = {(*each.values(),) for each in here.to_pylist()}
    minute = timedelta(minutes=1)
    went_on = ([*Day(name, dt).through((end - minute).date())] for name, dt, end in found)
    return {day for each in went_on if not own.isdisjoint(each) for day in each}


def _spans_of(stretches: DataFrame, ends: DataFrame, gap: int) -> list[Span]:
    ends = ends.withColumnRenamed("dt", "end_day")
    far = sf.expr(f"interval {gap} minutes")
    final = sf.col("end") - sf.expr("interval 1 minute")
    spans = (
        stretches.withColumns({"final": final, "end_day": sf.to_date(final)})
        .join(sf.broadcast(ends), ["cluster_id", "end_day"])
        .select(
            "cluster_id",
            sf.to_date(sf.col("start") - far).alias("first"),
            sf.to_date("start").alias("start"),
            "end_day",
            sf.to_date(sf.col("final") + far).alias("last"),
            (sf.col("final") >= sf.col("last_ts")).alias("is_at_end"),
        )
    )
    return [Span(*row) for row in spans.distinct().collect()]


def _start(span: Span) -> Day:
    return Day(span.cluster_id, span.start)


def _of(found: Iterable[Sequence[Partition]]) -> set[Day]:
    return {Day.of(partition) for partitions in found for partition in partitions}


def _partition(day: Day) -> Partition:
    return {"cluster_id": day.cluster_id, "dt": f"{day.dt}"}


def _partitions(days: Iterable[Day]) -> list[Partition]:
    return [_partition(day) for day in sorted(days)]
