"""The data-quality checks of an ingest: what was counted, against what is fine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP
from app.pipeline.ingest.minutes import DUPLICATE
from app.pipeline.ingest.points import MISSING_BROKER, OUTSIDE, UNDECODABLE, UNKNOWN_METRIC, UNNAMED
from app.pipeline.ingest.rows import UNPARSABLE, UNREADABLE

REASONS: Final = (
    *(DUPLICATE, "infinite", MISSING_BROKER, "nan", "negative", "too-large"),
    *(UNDECODABLE, UNKNOWN_METRIC, UNPARSABLE, UNREADABLE),
)
"""Why a row is quarantined."""

_USED: Final = {RATE: "samples", THROTTLE: "throttles", TOKENS: "tokens", UP: "ups"}
CLUSTER_NAMED: Final = "cluster_named"
_COVERAGE: Final = 0.9
_SKEW_S: Final = 120.0
_MINUTE_S: Final = 60


class Check(NamedTuple):
    """A row of ``DQ_RESULT``."""

    check: str
    value: float
    threshold: float
    passed: bool
    detail: str


class Broker(NamedTuple):
    """When a broker reported.

    Attributes:
        cluster_id: Its cluster.
        broker_id: Its id.
        minutes: In which it reported anything.
        first: Its first point.
        last: Its last point.
        failed: Scrapes that failed: ``up`` was 0.
    """

    cluster_id: str
    broker_id: int
    minutes: int
    first: datetime
    last: datetime
    failed: int


@dataclass(slots=True)
class Tally:
    """What was counted.

    Attributes:
        used: Rows that count, by attribute.
        refused: Rows that do not, by reason.
        left_out: Rows outside the period; they are no input.
        brokers: That reported.
        days: Of which there are rows: cluster id and day.
        is_mixed: Whether the input names several clusters.
    """

    used: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    brokers: Sequence[Broker] = ()
    days: set[tuple[str, str]] = field(default_factory=set)
    is_mixed: bool = False

    @property
    def clusters(self) -> set[str]:
        """The cluster ids of the points that count."""
        return {broker.cluster_id for broker in self.brokers}

    @property
    def quarantined(self) -> int:
        """How many rows do not count."""
        return sum(self.refused.values())

    @property
    def rows_in(self) -> int:
        """How many rows there were."""
        return sum(self.used.values()) + self.quarantined


def tally(minutes: DataFrame) -> Tally:
    """Add up what ``sum_minutes`` counted."""
    rows = _by_broker(minutes).collect()
    refused = {row.problem: row.rows for row in rows if row.problem is not None}
    left_out = refused.pop(OUTSIDE, 0)
    fine = [row for row in rows if row.problem is None]
    counts = {
        name: count
        for name, column in (_USED | {DUPLICATE: "duplicates"}).items()
        if (count := sum(row[column] for row in fine))
    }
    if DUPLICATE in counts:
        refused[DUPLICATE] = counts.pop(DUPLICATE)
    clusters = {row[name] for row in fine for name in ("first_cluster", "last_cluster")} - {None}
    return Tally(
        counts,
        dict(sorted(refused.items())),
        left_out,
        sorted(Broker(*(row[name] for name in Broker._fields)) for row in fine if row["first"]),
        {(row.cluster_id, day) for row in fine for day in row.days},
        len(clusters) > 1,
    )


def _by_broker(minutes: DataFrame) -> DataFrame:
    sums = (
        *(sf.sum(name).alias(name) for name in ("rows", "duplicates", "failed", *_USED.values())),
        *(sf.min(name).alias(name) for name in ("first", "first_cluster")),
        *(sf.max(name).alias(name) for name in ("last", "last_cluster")),
    )
    used = sf.expr("samples + throttles + tokens + ups")
    brokers = ("problem", "cluster_id", "broker_id")
    by_minute = (
        minutes.select(*brokers, "ts", "samples", "rate_avg", "counted.*")
        .withColumns({name: sf.when(used > 0, sf.col(name)) for name in ("first", "last")})
        .groupBy(*brokers, "ts")
        .agg(*sums, sf.count("rate_avg").alias("written"))
    )
    day = sf.when(sf.col("written") > 0, sf.col("ts").cast("date").cast("string"))
    reported = sf.count_if(used > sf.col("failed")).alias("minutes")
    return by_minute.groupBy(*brokers).agg(*sums, reported, sf.collect_set(day).alias("days"))


def checks(counted: Tally, stored: int, now: datetime, cluster: str | None = None) -> list[Check]:
    """Judge what was counted.

    Args:
        counted: By ``tally``.
        stored: Rows in that were quarantined, as the table says.
        now: A point after it comes from a clock that is ahead.
        cluster: The cluster id that was given to all points.
    """
    counts = (_balance(counted, stored), _naming(counted, cluster), *_quarantine(counted))
    return [*counts, *_clocks(counted, now), *_coverage(counted)]


def _balance(counted: Tally, stored: int) -> Check:
    lost = counted.quarantined - stored
    used = sum(counted.used.values())
    detail = f"{counted.rows_in} rows in, {used} used, {stored} quarantined"
    return Check("rows_in_equal_rows_out", float(lost), 0.0, lost == 0, detail)


def _naming(counted: Tally, cluster: str | None) -> Check:
    unnamed = cluster is None and UNNAMED in counted.clusters
    detail = f"cluster_id is {UNNAMED}: name it with --cluster" if unnamed else ""
    return Check(CLUSTER_NAMED, float(unnamed), 0.0, not unnamed, detail)


def _quarantine(counted: Tally) -> Iterator[Check]:
    for reason in REASONS:
        rows = counted.refused.get(reason, 0)
        name = f"quarantined_{reason.replace('-', '_')}"
        yield Check(name, float(rows), 0.0, rows == 0, f"{rows} of {counted.rows_in} rows")


def _clocks(counted: Tally, now: datetime) -> Iterator[Check]:
    last = max((broker.last for broker in counted.brokers), default=now)
    ahead = max(0.0, (last - now).total_seconds())
    detail = f"the last point is of {last:%Y-%m-%dT%H:%M:%SZ}" if counted.brokers else ""
    yield Check("seconds_ahead_of_this_clock", ahead, _SKEW_S, ahead <= _SKEW_S, detail)
    failed = sum(broker.failed for broker in counted.brokers)
    yield Check("failed_scrapes", float(failed), 0.0, failed == 0, "points of `up` that are 0")


def _coverage(counted: Tally) -> Iterator[Check]:
    """Compare the minutes in which each broker reported with those of its cluster's span."""
    for broker in counted.brokers:
        mates = [mate for mate in counted.brokers if mate.cluster_id == broker.cluster_id]
        first, last = min(mate.first for mate in mates), max(mate.last for mate in mates)
        span = int(last.timestamp()) // _MINUTE_S - int(first.timestamp()) // _MINUTE_S + 1
        share = broker.minutes / span
        detail = f"{broker.minutes} of {span} minutes from {first:%Y-%m-%dT%H:%MZ}"
        name = f"coverage cluster {broker.cluster_id} broker {broker.broker_id}"
        yield Check(name, share, _COVERAGE, share >= _COVERAGE, detail)
        behind = (last - broker.last).total_seconds()
        name = f"seconds_behind cluster {broker.cluster_id} broker {broker.broker_id}"
        yield Check(name, behind, _SKEW_S, behind <= _SKEW_S, f"its cluster has {last:%H:%M:%SZ}")
