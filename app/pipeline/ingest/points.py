"""Points of metrics, judged one by one: what each is of, or why it cannot be used."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.broker_metrics import (
    RATE,
    THROTTLE,
    UP,
    UTILIZATION,
    client_id_of_tag,
    quota_metric_of,
    user_of_tag,
)
from app.domain.metric_labels import BROKER, CLIENT_ID, CLUSTER, INSTANCE, METRIC, RESOURCE, USER
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.minutes import HOUR_US
from app.pipeline.ingest.texts import END_US, FIRST_US, Texts, number_of, pairs_of_texts
from app.pipeline.usage.measures import Numbers

LEFT_OUT: Final = "left-out"
"""The problem of points that are no input: ``--from`` and ``--to`` leave them out, or they are of a
metric that says nothing of a rate."""

UNREADABLE: Final = "unreadable-file"
UNPARSABLE: Final = "unparsable"
UNKNOWN_METRIC: Final = "unknown-metric"
MISSING_BROKER: Final = "missing-broker"
UNDECODABLE: Final = "undecodable-name"
UNNAMED: Final = "unknown"
"""The cluster id of points that name no cluster, where ``--cluster`` names none either."""

Rows = tuple[pa.Table, Callable[[Numbers, Numbers], Sequence[str]]]
"""Points as their input has them, and what returns the texts of some by their numbers.

The columns are file (the number of the input), line (where the point stands in it, null where
nobody counts), ts (microseconds of the epoch, null where no time can be read), value (null where no
number can be read), some of ``FIELDS``, of any type, and maybe problem, which is ``UNREADABLE`` or
null. Where the second array is true, a text may be that of the labels alone,
which many points share.
"""

POINTS_DDL: Final = """
    file int, line bigint, cluster string, cluster_id string, ts bigint, broker_id int, key string,
    attribute string, user string, client_id string, value double, problem string, text string"""
"""The columns of a point. ``ts`` are microseconds of the epoch, ``cluster`` is what the input
names; ``value`` is null where an idle throttle time says nothing. One with a ``problem``, the
reason of its quarantine, has ``text`` instead of names."""

LARGEST: Final = 9e12
"""From here on 10^-6 units of a value do not fit 64 bits."""

FIELDS: Final = (CLUSTER, BROKER, INSTANCE, METRIC, RESOURCE, USER, CLIENT_ID)
"""The columns that name a series."""

LONGEST_TEXT: Final = 4096
_MAY_BE_NONE: Final = (USER, CLIENT_ID, RESOURCE, CLUSTER)
_OF_SERIES: Final = (UNKNOWN_METRIC, MISSING_BROKER, UNDECODABLE)


@dataclass(frozen=True)
class Rules:
    """How points are judged.

    Attributes:
        tags: Whether names are tags of metrics, to be decoded.
        since_us: Leave out what is earlier, in microseconds of the epoch.
        until_us: Leave out this time and later.
        cluster: The cluster id of all points; null leaves each its own.
    """

    map: MetricMap = field(default_factory=MetricMap)
    tags: bool = True
    since_us: int | None = None
    until_us: int | None = None
    cluster: str | None = None

    @property
    def has_period(self) -> bool:
        """Whether some times are left out."""
        return self.since_us is not None or self.until_us is not None

    def has_hour(self, hour: datetime) -> bool:
        """Tell whether some times of an hour are not left out."""
        begin = int(hour.timestamp()) * 1_000_000
        return (self.until_us is None or begin < self.until_us) and (
            self.since_us is None or begin + HOUR_US > self.since_us
        )


def judge(points: Rows, rules: Rules) -> pa.Table:
    """Judge points one by one: what each is of, or why it cannot be used.

    The result has the columns of ``POINTS_DDL``, in its order; texts but the last as dictionaries.
    """
    rows, texts_of = points
    labels = {name: _label(rows, name, rules.map) for name in FIELDS}
    key, attribute = _metrics(labels["metric"], labels["resource"])
    is_up = attribute.equals(UP)
    names = {
        "user": labels["user"].map(user_of_tag if rules.tags else str),
        "client_id": labels["client_id"].map(client_id_of_tag if rules.tags else str),
    }
    if is_up.any():
        names = {name: _nameless(found, is_up) for name, found in names.items()}
    broker, has_broker = _brokers(labels["broker"], labels["instance"], rules.map)
    ts, has_ts = _numbers(rows["ts"], 0)
    has_ts &= (ts >= FIRST_US) & (ts < END_US)
    value, has_value = _numbers(rows["value"], np.nan)
    outside = attribute.equals(UTILIZATION)
    for limit, is_out in ((rules.since_us, np.less), (rules.until_us, np.greater_equal)):
        if limit is not None:
            outside |= has_ts & is_out(ts, limit)
    is_nan, is_throttle = np.isnan(value), attribute.equals(THROTTLE)
    is_rate = attribute.equals(RATE)
    nameless = names["user"].is_none() | names["client_id"].is_none() | labels["cluster"].is_none()
    # The first that holds is the problem. An idle throttle time is NaN: nothing was throttled.
    # Source: ``Avg.measure``.
    claims = {
        LEFT_OUT: outside,
        UNREADABLE: _label(rows, "problem", rules.map).equals(UNREADABLE),
        UNPARSABLE: ~has_ts | ~has_value,
        UNKNOWN_METRIC: attribute.is_none(),
        MISSING_BROKER: ~has_broker,
        UNDECODABLE: nameless,
        "nan": is_nan & ~is_throttle,
        "infinite": np.isinf(value),
        "too-large": value >= LARGEST,
        "negative": (value < 0) & (is_rate | is_throttle),
    }
    problem = _first(claims)
    is_bad = ~problem.is_none()
    cluster = labels["cluster"]
    own = Texts(cluster.codes, [name or UNNAMED for name in cluster.values]).distinct()
    if rules.cluster is not None:
        own = Texts.same(rules.cluster, len(rows))
    columns = {
        "file": rows["file"],
        "line": rows["line"],
        "cluster": cluster.array(is_bad),
        "cluster_id": own.array(),
        "ts": pa.array(ts, mask=None if has_ts.all() else ~has_ts),
        "broker_id": pa.array(broker, mask=is_bad),
        "key": key.array(is_bad),
        "attribute": attribute.array(is_bad),
        **{name: found.array(is_bad) for name, found in names.items()},
        "value": pa.array(value, mask=is_bad | is_nan),
        "problem": problem.array(),
        "text": _texts(problem, texts_of),
    }
    return pa.table(columns)


def judge_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    find: Callable[[pa.Table], Rows],
    rules: Rules,
    numbers: Mapping[str, int],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Judge batches of source and line and more, of which ``find`` makes rows.

    Args:
        numbers: Those of the sources.
        schema: Of ``POINTS_DDL``.
    """
    for batch in batches:
        read = pa.Table.from_batches([batch])
        files = Texts.of(read[0]).look_up(lambda source: numbers[f"{source}"], np.int32)
        found = find(read.set_column(0, "file", pa.array(files)))
        yield from judge(found, rules).cast(schema).to_batches()


def _label(rows: pa.Table, name: str, names: MetricMap) -> Texts:
    """Return a label, '' where the input says nothing."""
    if name not in rows.column_names:
        return Texts.same("", len(rows))
    found = Texts.of(rows[name])
    if name not in _MAY_BE_NONE or not names.none:
        return found
    return found.map(lambda text: "" if text in names.none else text)


def _metrics(metric: Texts, resource: Texts) -> tuple[Texts, Texts]:
    """Return key and attribute of metric and resource, none where they are none of a quota."""
    codes, both = pairs_of_texts(metric, resource)
    # What is no text is the name of nothing.
    found = [None if name is None else quota_metric_of(name, kind or "") for name, kind in both]
    keys = [None if item is None else str(item.key) for item in found]
    attributes = [None if item is None else item.attribute for item in found]
    return Texts(codes, keys).distinct(), Texts(codes, attributes).distinct()


def _nameless(names: Texts, is_up: Numbers) -> Texts:
    """Return '' where a point is of a broker as a whole."""
    codes = np.where(is_up, len(names.values), names.codes)
    return Texts(codes, [*names.values, ""]).distinct()


def _brokers(broker: Texts, instance: Texts, names: MetricMap) -> tuple[Numbers, Numbers]:
    """Return ids, and which rows have one."""
    codes, both = pairs_of_texts(broker, instance)
    found = []
    for text, other in both:
        named = names.instances.get((text if text != "" else other) or "")
        found.append(_broker_id(text) if named is None else named)
    ids = np.array([-1 if broker_id is None else broker_id for broker_id in found], np.int64)
    is_id = np.array([broker_id is not None for broker_id in found], bool)
    return ids.astype(np.int32)[codes], is_id[codes]


def _broker_id(text: str | None) -> int | None:
    number = number_of(text)
    is_id = number is not None and 0 <= number < 2**31 and number == int(number)
    return int(number) if number is not None and is_id else None


def _numbers(column: pa.ChunkedArray, nothing: float) -> tuple[Numbers, Numbers]:
    """Return values, and which rows have one."""
    has_value = column.is_valid().to_numpy()
    filled = pc.fill_null(column, nothing) if column.null_count else column
    return filled.to_numpy(), has_value


def _first(claims: Mapping[str, Numbers]) -> Texts:
    """Return the first problem of each row, none where it is fine."""
    codes = np.zeros(len(claims[LEFT_OUT]), np.int64)
    for number, claim in reversed([*enumerate(claims.values(), 1)]):
        codes[claim] = number
    return Texts(codes, [None, *claims]).distinct()


def _texts(problem: Texts, texts_of: Callable[[Numbers, Numbers], Sequence[str]]) -> pa.Array:
    """Return the texts of the points that are quarantined."""
    at = np.flatnonzero(problem.look_up(lambda reason: reason not in {None, LEFT_OUT}, bool))
    texts = np.full(len(problem.codes), None)
    if len(at):
        of_series = problem.look_up(lambda reason: reason in _OF_SERIES, bool)[at]
        texts[at] = [text[:LONGEST_TEXT] for text in texts_of(at, of_series)]
    return pa.array(texts, pa.string())
