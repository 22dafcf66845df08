"""The checks of an ingest: what was counted, and what to do where nothing of it counts."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from pyspark.sql import DataFrame

from app.domain.broker_metrics import NO_QUOTA_METRICS
from app.domain.metric_labels import INSTANCE, labels_by_field
from app.pipeline.ingest.hours import DUPLICATE
from app.pipeline.ingest.inputs import Inputs
from app.pipeline.ingest.minutes import ATTRIBUTES
from app.pipeline.ingest.points import (
    MISSING_BROKER,
    UNDECODABLE,
    UNKNOWN_METRIC,
    UNNAMED,
    UNPARSABLE,
    UNREADABLE,
)

REASONS: Final = (
    *(DUPLICATE, "infinite", MISSING_BROKER, "nan", "negative", "too-large"),
    *(UNDECODABLE, UNKNOWN_METRIC, UNPARSABLE, UNREADABLE),
)
"""Why a row is quarantined."""

CLUSTER_NAMED: Final = "cluster_named"
_COVERAGE: Final = 0.9
_SKEW_S: Final = 120.0
_SERIES_SEEN: Final = 100
_VALUES_NAMED: Final = 3


class Check(NamedTuple):
    """A row of ``DQ_RESULT``."""

    check: str
    value: float
    threshold: float
    passed: bool
    detail: str


class Broker(NamedTuple):
    """The minutes in which a broker reported anything, and its first and last times."""

    cluster_id: str
    broker_id: int
    minutes: int
    first: datetime
    last: datetime


@dataclass(slots=True)
class Tally:
    """What was counted.

    Attributes:
        refused: Rows that do not count, by reason.
        left_out: Rows outside the period, or of a metric that says nothing of a rate.
        hours: The rows of each hour of a cluster, counted from the epoch, that has rates.
        named: What the input names clusters.
        used: Rows that count, by attribute.
        failed: Scrapes that failed: ``up`` was 0.
        stored: Rows that are in ``quarantine``.
    """

    fine: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    brokers: Sequence[Broker] = ()
    hours: dict[tuple[str, int], int] = field(default_factory=dict)
    named: Sequence[str] = ()
    used: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    stored: int = 0

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
        return self.fine + self.quarantined - self.refused.get(DUPLICATE, 0)

    @classmethod
    def of(cls, reports: Mapping[str, pa.Table], unreadable: int) -> Self:
        """Sum up ``REPORTS``, and files that cannot be read: each is a row."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        if unreadable:
            counts["refused"][UNREADABLE] = unreadable
        for kind, name, n in zip(*reports["counted"].to_pydict().values(), strict=True):
            counts[kind][name] += n
        hours: Counter[tuple[str, int]] = Counter()
        of_broker: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
        for row in reports["reported"].to_pylist():
            of_broker[row["cluster_id"], row["broker_id"]].append(row)
            if row["has_rates"]:
                hours[row["cluster_id"], row["hour_number"]] += row["rows"]
        brokers = [
            Broker(
                *name,
                sum(row["minutes"] for row in found),
                _time(min(row["first"] for row in found)),
                _time(max(row["last"] for row in found)),
            )
            for name, found in sorted(of_broker.items())
        ]
        return cls(
            fine=sum(row["rows"] for found in of_broker.values() for row in found),
            refused=dict(sorted(counts["refused"].items())),
            left_out=counts["left_out"].total(),
            brokers=brokers,
            hours=hours,
            named=sorted(counts["cluster"]),
            used={name: n for name in ATTRIBUTES if (n := counts["used"][name])},
            failed=counts["failed"][""],
        )


def _time(micros: int) -> datetime:
    """Return microseconds of the epoch as Spark returns times: UTC, without a zone."""
    return datetime(1970, 1, 1) + timedelta(microseconds=micros)  # noqa: DTZ001


def checks(counted: Tally, now: datetime, cluster: str | None = None) -> Iterator[Check]:
    """Judge what was counted."""
    lost, used = counted.quarantined - counted.stored, sum(counted.used.values())
    detail = f"{counted.rows_in} rows in, {used} used, {counted.stored} quarantined"
    yield Check("rows_in_equal_rows_out", float(lost), 0.0, lost == 0, detail)
    unnamed = cluster is None and UNNAMED in counted.clusters
    detail = f"cluster_id is {UNNAMED}: name it with --cluster" if unnamed else ""
    yield Check(CLUSTER_NAMED, float(unnamed), 0.0, not unnamed, detail)
    for reason in REASONS:
        rows = counted.refused.get(reason, 0)
        name = f"quarantined_{reason.replace('-', '_')}"
        yield Check(name, float(rows), 0.0, rows == 0, f"{rows} of {counted.rows_in} rows")
    yield from _clocks(counted, now)
    yield from _coverage(counted)


def _clocks(counted: Tally, now: datetime) -> Iterator[Check]:
    last = max((broker.last for broker in counted.brokers), default=now)
    ahead = max(0.0, (last - now).total_seconds())
    detail = f"the last point is of {last:%Y-%m-%dT%H:%M:%SZ}" if counted.brokers else ""
    yield Check("seconds_ahead_of_this_clock", ahead, _SKEW_S, ahead <= _SKEW_S, detail)
    failed = counted.failed
    yield Check("failed_scrapes", float(failed), 0.0, failed == 0, "points of `up` that are 0")


def _coverage(counted: Tally) -> Iterator[Check]:
    """Compare the minutes in which each broker reported with those of its cluster's span."""
    for broker in counted.brokers:
        mates = [mate for mate in counted.brokers if mate.cluster_id == broker.cluster_id]
        first, last = min(mate.first for mate in mates), max(mate.last for mate in mates)
        span = int(last.timestamp()) // 60 - int(first.timestamp()) // 60 + 1
        share = broker.minutes / span
        detail = f"{broker.minutes} of {span} minutes from {first:%Y-%m-%dT%H:%MZ}"
        name = f"coverage cluster {broker.cluster_id} broker {broker.broker_id}"
        yield Check(name, share, _COVERAGE, share >= _COVERAGE, detail)
        behind = (last - broker.last).total_seconds()
        name = f"seconds_behind cluster {broker.cluster_id} broker {broker.broker_id}"
        yield Check(name, behind, _SKEW_S, behind <= _SKEW_S, f"its cluster has {last:%H:%M:%SZ}")


def without_quota_metrics(counted: Tally) -> str | None:
    """Return what may be wrong where no metric of the input is one of quotas; null elsewhere."""
    if counted.hours or counted.refused.keys() - {UNKNOWN_METRIC}:
        return None
    return f"No quota metrics in this input: {NO_QUOTA_METRICS}."


def without_files(inputs: Inputs) -> str | None:
    """Return how many files cannot be read, and the name of the first; null where there is none."""
    if not inputs.unreadable:
        return None
    number, files = len(inputs.unreadable), len(inputs.names)
    first = inputs.names[min(inputs.unreadable)]
    return f"{number} of {files} files cannot be read, {first} first: `quarantine` says why."


def without_brokers(counted: Tally, surplus: DataFrame, inputs: Inputs) -> str | None:
    """Return which label may name the brokers where no point does; null elsewhere."""
    if counted.fine or MISSING_BROKER not in counted.refused:
        return None
    # JSON has no headers.
    found: Mapping[str, list[str]] = {
        header: [] for headers, _ in inputs.groups for header in headers.read
    } or _labels(surplus)
    instances = labels_by_field(found).get(INSTANCE, [])
    if instances:
        values = found[instances[0]]
        examples = f" ({', '.join(values)})" if values else ""
        key = json.dumps(values[0] if values else "HOST:PORT", ensure_ascii=False)
        return (
            f"No row names its broker. There is {instances[0]}{examples}: say which broker each "
            f"value is in the file of --map, as in `instances: {{{key}: 1}}`."
        )
    return (
        f"No row names its broker; there are {', '.join(sorted(found)) or 'no labels'}. Say in the "
        "file of --map which it is, as in `columns: {broker_id: LABEL}`, and `instances: "
        "{VALUE: 1}` where its values are no ids."
    )


def _labels(surplus: DataFrame) -> Mapping[str, list[str]]:
    """Return the labels of some series without brokers, with some of their values."""
    texts = surplus.where(f"reason = '{MISSING_BROKER}'").select("raw").limit(_SERIES_SEEN)
    found: dict[str, list[str]] = {}
    for row in texts.distinct().collect():
        try:
            document = json.loads(row.raw)
        except ValueError:
            # It is cut where it is long.
            continue
        labels = document.get("labels", document)
        for name, value in labels.items():
            values = found.setdefault(name, [])
            if value not in values and len(values) < _VALUES_NAMED:
                values.append(value)
    return found
