"""Points of metrics, judged one by one and batched for Spark."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

from app.domain.broker_metrics import (
    RATE,
    THROTTLE,
    UP,
    client_id_of_tag,
    quota_metric_of,
    readable,
    user_of_tag,
)
from app.pipeline.sources.metric_map import MetricMap

POINT_DDL: Final = """
    file int, line bigint, cluster_id string, ts timestamp, broker_id int, key string,
    attribute string, user string, client_id string, value double, problem string, raw string,
    n bigint"""
"""``file`` is the number of the input, ``line`` where in it; a point with a ``problem`` (the
reason of its quarantine) has ``raw``, its text, and stands for ``n`` points."""

OUTSIDE: Final = "outside-period"
"""The problem of points that ``--from`` and ``--to`` leave out: they are no input."""

UNREADABLE: Final = "unreadable-file"
UNPARSABLE: Final = "unparsable"
UNKNOWN_METRIC: Final = "unknown-metric"
MISSING_BROKER: Final = "missing-broker"
UNDECODABLE: Final = "undecodable-name"
LARGEST: Final = 9e12
"""From here on 10^-6 units of a value do not fit 64 bits."""

POINT_SCHEMA: Final = pa.schema(
    [
        ("file", pa.int32()),
        ("line", pa.int64()),
        ("cluster_id", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("broker_id", pa.int32()),
        ("key", pa.string()),
        ("attribute", pa.string()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("value", pa.float64()),
        ("problem", pa.string()),
        ("raw", pa.string()),
        ("n", pa.int64()),
    ]
)
_ROWS_OF_BATCH: Final = 20_000
_LONGEST_RAW: Final = 4096
_LARGEST_BROKER: Final = 2**31 - 1


class Labels(NamedTuple):
    """What names a series, as the input has it; '' where it says nothing."""

    cluster: str = ""
    broker: str = ""
    instance: str = ""
    metric: str = ""
    resource: str = ""
    user: str = ""
    client_id: str = ""


class Identity(NamedTuple):
    """A series after all names are read: the columns from cluster_id to client_id without ts."""

    cluster_id: str
    broker_id: int
    key: str
    attribute: str
    user: str
    client_id: str


@dataclass(frozen=True)
class Rules:
    """How points are judged.

    Attributes:
        map: Of the input.
        tags: Whether names are tags of metrics, to be decoded.
        since_us: Leave out what is earlier, in microseconds of the epoch.
        until_us: Leave out this time and later.
    """

    map: MetricMap = field(default_factory=MetricMap)
    tags: bool = True
    since_us: int | None = None
    until_us: int | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Return what ``as_json`` gave."""
        return cls(**{**told, "map": MetricMap.of(told["map"])})

    def as_json(self) -> Mapping[str, Any]:
        """Return what ``of`` reads."""
        return asdict(self)


class Points:
    """Collects the points of one input; ``batches`` hands them over."""

    def __init__(self, file: int, rules: Rules) -> None:
        """Take the input's number."""
        self._file = file
        self._rules = rules
        self._rows: list[tuple[object, ...]] = []
        self._outside = 0
        self.identity = lru_cache(maxsize=100_000)(self._identity)

    def add(self, line: int, identity: Identity, ts_us: int, value: float) -> str | None:
        """Keep a point, or return why it cannot be used."""
        if self.outside(ts_us):
            self._outside += 1
            return None
        if not 0 <= value < LARGEST:
            problem = problem_of(identity.attribute, value)
            if problem:
                return problem
        number = None if math.isnan(value) else value
        cluster, *series = identity
        self._rows.append(
            (self._file, line, cluster, ts_us, *series, number, None, None, 1),
        )
        return None

    def add_row(
        self, line: int, labels: Labels | None, ts_us: int | None, value: float | None
    ) -> str | None:
        """Keep the point of a row of its own, null where it cannot be read, or return why not."""
        if labels is None or ts_us is None or value is None:
            return UNPARSABLE
        if self.outside(ts_us):
            self.leave_out(1)
            return None
        identity = self.identity(labels)
        if isinstance(identity, str):
            return identity
        return self.add(line, identity, ts_us, value)

    def reject(self, line: int, reason: str, raw: str, n: int = 1) -> None:
        """Put points aside that cannot be used."""
        text = kept_text(raw)
        nothing = (None,) * 8
        self._rows.append((self._file, line, *nothing, reason, text, n))

    def outside(self, ts_us: int) -> bool:
        """Tell whether ``--from`` and ``--to`` leave out a time."""
        since, until = self._rules.since_us, self._rules.until_us
        return (since is not None and ts_us < since) or (until is not None and ts_us >= until)

    def leave_out(self, n: int) -> None:
        """Count points that ``outside`` told of."""
        self._outside += n

    def batches(self, *, last: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield what has been collected, once it is enough; at last all of it."""
        if last and self._outside:
            self.reject(0, OUTSIDE, "", self._outside)
        if self._rows and (last or len(self._rows) >= _ROWS_OF_BATCH):
            columns = zip(*self._rows, strict=True)
            arrays = [
                pa.array(column, item.type)
                for column, item in zip(columns, POINT_SCHEMA, strict=True)
            ]
            self._rows = []
            yield pa.record_batch(arrays, schema=POINT_SCHEMA)

    def _identity(self, labels: Labels) -> Identity | str:
        """Return what the labels name, or why they cannot be used."""
        metric = quota_metric_of(labels.metric, labels.resource)
        if metric is None:
            return UNKNOWN_METRIC
        broker = self.broker(labels)
        if broker is None:
            return MISSING_BROKER
        user, client_id = ("", "") if metric.attribute == UP else self._names(labels)
        cluster = readable(labels.cluster)
        if user is None or client_id is None or cluster is None:
            return UNDECODABLE
        return Identity(cluster, broker, metric.key, metric.attribute, user, client_id)

    def broker(self, labels: Labels) -> int | None:
        """Return the id of the broker, or null where the labels name none."""
        instances = self._rules.map.instances
        name = labels.broker or labels.instance
        if name in instances:
            return instances[name]
        text = labels.broker.removesuffix(".0")
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else -1
        return number if 0 <= number <= _LARGEST_BROKER else None

    def read_user(self, told: str) -> str | None:
        """Return the user's name, or null where it cannot be decoded."""
        return user_of_tag(told) if self._rules.tags else readable(told)

    def read_client_id(self, told: str) -> str | None:
        """Return the client-id, or null where it cannot be decoded."""
        return client_id_of_tag(told) if self._rules.tags else readable(told)

    def _names(self, labels: Labels) -> Sequence[str | None]:
        return self.read_user(labels.user), self.read_client_id(labels.client_id)


def kept_text(raw: str) -> str:
    """Return so much of the text of what cannot be used as the quarantine keeps."""
    return raw.encode("utf-8", "backslashreplace").decode()[:_LONGEST_RAW]


def problem_of(attribute: str, value: float) -> str | None:
    """Return what is wrong with a number that is no ordinary one."""
    if math.isnan(value):
        # An idle throttle time is NaN: nothing was throttled. Source: ``Avg.measure``.
        return None if attribute == THROTTLE else "nan"
    if math.isinf(value):
        return "infinite"
    if value >= LARGEST:
        return "too-large"
    return "negative" if attribute in (RATE, THROTTLE) else None


def as_text(labels: Mapping[str, object], point: object) -> str:
    """Return one point of a series the way Prometheus writes it."""
    return json.dumps({"metric": labels, "value": point}, ensure_ascii=False)
