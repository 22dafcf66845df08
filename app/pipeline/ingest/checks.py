"""The data-quality checks of an ingest: what was counted, against what is fine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP
from app.pipeline.ingest.minutes import DUPLICATE, MISSING_RATE
from app.pipeline.ingest.points import (
    MISSING_BROKER,
    OUTSIDE,
    UNDECODABLE,
    UNKNOWN_METRIC,
    UNNAMED,
)
from app.pipeline.ingest.rows import UNPARSABLE, UNREADABLE

REASONS: Final = (
    *(DUPLICATE, "infinite", MISSING_BROKER, MISSING_RATE, "nan", "negative", "too-large"),
    *(UNDECODABLE, UNKNOWN_METRIC, UNPARSABLE, UNREADABLE),
)
"""Why a row is quarantined."""

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
        clusters: The cluster ids of the points that count.
        brokers: That reported.
    """

    used: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    clusters: set[str] = field(default_factory=set)
    brokers: Sequence[Broker] = ()

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
    refused: dict[str, int] = {}
    used: dict[str, int] = {}
    sums = {RATE: "samples", THROTTLE: "throttles", TOKENS: "tokens", UP: "ups"}
    columns = {**sums, DUPLICATE: "duplicates", MISSING_RATE: "lonely", "rows": "rows"}
    totals = [sf.sum(column).alias(name) for name, column in columns.items()]
    for row in minutes.groupBy("problem").agg(*totals).collect():
        if row.problem is not None:
            refused[row.problem] = row.rows
            continue
        used = {name: row[name] for name in sums if row[name]}
        refused |= {name: row[name] for name in (DUPLICATE, MISSING_RATE) if row[name]}
    left_out = refused.pop(OUTSIDE, 0)
    brokers = _brokers(minutes)
    clusters = {broker.cluster_id for broker in brokers}
    return Tally(used, dict(sorted(refused.items())), left_out, clusters, brokers)


def _brokers(minutes: DataFrame) -> Sequence[Broker]:
    reported = sf.expr("samples + throttles + tokens + ups - failed")
    by_minute = (
        minutes.where("samples + throttles + tokens + ups > 0")
        .groupBy("cluster_id", "broker_id", "ts")
        .agg(
            sf.sum(reported).alias("reported"),
            *(sf.min("first").alias("first"), sf.max("last").alias("last")),
            sf.sum("failed").alias("failed"),
        )
    )
    brokers = by_minute.groupBy("cluster_id", "broker_id").agg(
        sf.count_if(sf.col("reported") > 0).alias("minutes"),
        *(sf.min("first").alias("first"), sf.max("last").alias("last")),
        sf.sum("failed").alias("failed"),
    )
    return sorted(Broker(*row) for row in brokers.collect())


def checks(
    counted: Tally, rows_out: Mapping[str, int], now: datetime, cluster: str | None = None
) -> list[Check]:
    """Judge what was counted.

    Args:
        counted: By ``tally``.
        rows_out: ``quarantine``: rows in that were quarantined, as the table says.
        now: A point after it comes from a clock that is ahead.
        cluster: The cluster id that was given to all points.
    """
    counts = (*_balance(counted, rows_out), _naming(counted, cluster), *_quarantine(counted))
    return [*counts, *_clocks(counted, now), *_coverage(counted)]


def _balance(counted: Tally, rows_out: Mapping[str, int]) -> Iterator[Check]:
    lost = counted.quarantined - rows_out["quarantine"]
    detail = (
        f"{counted.rows_in} rows in, {sum(counted.used.values())} used, "
        f"{rows_out['quarantine']} quarantined"
    )
    yield Check("rows_in_equal_rows_out", float(lost), 0.0, lost == 0, detail)


def _naming(counted: Tally, cluster: str | None) -> Check:
    unnamed = cluster is None and UNNAMED in counted.clusters
    detail = f"cluster_id is {UNNAMED}: name it with --cluster" if unnamed else ""
    return Check("cluster_named", float(unnamed), 0.0, not unnamed, detail)


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
