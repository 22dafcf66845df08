"""Points of metrics, judged one by one: what each is of, or why it cannot be used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from itertools import product
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, IntegralType, StringType

from app.domain.broker_metrics import (
    METRIC_NAMES,
    RATE,
    RESOURCES,
    THROTTLE,
    UP,
    UTILIZATION,
    client_id_of_tag,
    quota_metric_of,
    user_of_tag,
)
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.rows import END_US, FIRST_US, UNPARSABLE
from app.pipeline.tables import RESOURCES as OF_KAFKA

LEFT_OUT: Final = "left-out"
"""The problem of points that are no input: ``--from`` and ``--to`` leave them out, or they are of a
metric that says nothing of a rate."""

UNKNOWN_METRIC: Final = "unknown-metric"
MISSING_BROKER: Final = "missing-broker"
UNDECODABLE: Final = "undecodable-name"
UNNAMED: Final = "unknown"
"""The cluster id of points that name no cluster, where ``--cluster`` names none either."""

POINTS_DDL: Final = """
    file int, line bigint, position bigint, cluster string, cluster_id string, ts bigint,
    broker_id int, key string, attribute string, user string, client_id string, value double,
    problem string, text string"""
"""The columns of a point. ``position`` is its number in all inputs, in order, ``ts`` microseconds
of the epoch, ``cluster`` what the input names; ``value`` is null where an idle throttle time says
nothing. One with a ``problem``, the reason of its quarantine, has ``text`` instead of names."""

LARGEST: Final = 9e12
"""From here on 10^-6 units of a value do not fit 64 bits."""

ArrowFunction = Callable[[pa.Array], pa.Array]

_POINTS: Final = tuple(column.split()[0] for column in POINTS_DDL.split(","))
_HOUR_US: Final = 3_600_000_000
_LONGEST_TEXT: Final = 4096
_LARGEST_BROKER: Final = 2**31 - 1
_POSITIONS_OF_FILE: Final = 2**44
_MAY_BE_NONE: Final = ("user", "client_id", "resource", "cluster")
_OF_SERIES: Final = (UNKNOWN_METRIC, MISSING_BROKER, UNDECODABLE)


@dataclass(frozen=True)
class Rules:
    """How points are judged.

    Attributes:
        map: Of the input.
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
            self.since_us is None or begin + _HOUR_US > self.since_us
        )


def judge(rows: DataFrame, rules: Rules, text: Column, *, is_fine: bool = False) -> DataFrame:
    """Judge points one by one.

    Args:
        rows: The columns of ``ROWS_DDL``, or those of them from ``file`` to ``client_id``;
            ``broker`` may be a number.
        rules: How.
        text: Of a point that cannot be used; ``series`` stands for it where the labels are why.
        is_fine: Whether to return those alone that can be used, which costs less.

    Returns:
        The columns of ``POINTS_DDL``.
    """
    if rules.map.none:
        rows = rows.withColumns({name: _present(name, rules.map.none) for name in _MAY_BE_NONE})
    is_whole = isinstance(rows.schema["broker"].dataType, IntegralType)
    named = _with_metrics(rows).withColumns(
        {
            "ts": sf.when(sf.col("ts").between(FIRST_US, END_US - 1), sf.col("ts")),
            "broker_id": _broker(rules.map, is_whole=is_whole),
            "user": _name("user", user_of_tag if rules.tags else None),
            "client_id": _name("client_id", client_id_of_tag if rules.tags else None),
            "cluster": _name("cluster", None),
        }
    )
    is_up = sf.col("attribute") == UP
    nameless = {name: sf.when(is_up, "").otherwise(sf.col(name)) for name in ("user", "client_id")}
    earlier = sf.col("problem") if "problem" in rows.columns else sf.lit(None)
    judged, problem = named.withColumns(nameless), _problem(rules, earlier)
    if is_fine:
        # Spark would judge before and after a filter behind what follows.
        judged, problem = judged.where(problem.isNull()), sf.lit(None).cast("string")
    judged = judged.withColumn("problem", problem)
    fine = sf.col("problem").isNull()
    if "series" in rows.columns:
        of_series = sf.col("problem").isin(*_OF_SERIES) & sf.col("series").isNotNull()
        text = sf.when(of_series, sf.col("series")).otherwise(text)
    own = sf.nullif(sf.col("cluster"), sf.lit(""))
    chosen = {
        "position": sf.col("file").cast("bigint") * _POSITIONS_OF_FILE + sf.col("position"),
        "cluster_id": sf.coalesce(sf.lit(rules.cluster), own, sf.lit(UNNAMED)),
        "value": sf.when(~sf.isnan("value"), sf.col("value")),
        "text": sf.when(
            ~fine & (sf.col("problem") != LEFT_OUT), sf.left(text, sf.lit(_LONGEST_TEXT))
        ),
    }
    always = ("file", "line", "position", "cluster_id", "ts", "problem", "text")
    columns = {name: chosen.get(name, sf.col(name)) for name in _POINTS}
    return judged.select(
        *(
            (column if name in always else sf.when(fine, column)).alias(name)
            for name, column in columns.items()
        )
    )


def arrow_udf(kind: DataType) -> Callable[[ArrowFunction], Callable[[Column], Column]]:
    """Make a column's function of one of Arrow arrays; PySpark's has no types."""
    made: Callable[[ArrowFunction], Callable[[Column], Column]] = vars(sf)["arrow_udf"](kind)
    return made


def _present(name: str, none: Sequence[str]) -> Column:
    return sf.when(sf.col(name).isin(*none), "").otherwise(sf.col(name))


def _with_metrics(rows: DataFrame) -> DataFrame:
    """Add key and attribute of metric and resource, null where they are none of a quota.

    What ``quota_metric_of`` understands once case and separators are gone is few enough for a
    table. Most are spelled so that there is nothing to do, and to see that takes far less time.
    """
    of_quotas = [
        (name, kind, found.key, found.attribute)
        for name, kind in product(METRIC_NAMES, ("", *RESOURCES))
        if (found := quota_metric_of(name, kind))
    ]
    ddl = "name string, kind string, key string, attribute string"
    metrics = rows.sparkSession.createDataFrame(of_quotas, ddl)
    metric, resource = sf.col("metric"), sf.col("resource")
    name = sf.lower(_replaced(_replaced(metric, "-", "_"), ".", "_"))
    kind = sf.lower(_replaced(_replaced(resource, "-", ""), "_", ""))
    kind = sf.when(kind.isin(*RESOURCES), kind).otherwise("")
    is_plain = sf.expr(f"metric in ({', '.join(map(repr, METRIC_NAMES))})")
    spelled = reduce(_lowered, OF_KAFKA.values(), sf.when(resource == "", ""))
    named = rows.withColumns(
        {
            "name": sf.when(is_plain, metric).otherwise(name),
            "kind": spelled.otherwise(kind),
        }
    )
    return named.join(sf.broadcast(metrics), ["name", "kind"], "left")


def _lowered(cases: Column, spelled: str) -> Column:
    return cases.when(sf.col("resource") == spelled, spelled.lower())


def _replaced(text: Column, old: str, new: str) -> Column:
    return sf.replace(text, sf.lit(old), sf.lit(new))


def _broker(names: MetricMap, *, is_whole: bool) -> Column:
    number = sf.col("broker")
    if not is_whole:
        number = number.try_cast("double")
        number = sf.when(number == sf.floor(number), number)
    number = sf.when(number.between(0, _LARGEST_BROKER), number).cast("int")
    if not names.instances:
        return number
    instances = sf.create_map(*(sf.lit(item) for pair in names.instances.items() for item in pair))
    broker = sf.col("broker").cast("string")
    name = sf.when(broker != "", broker).otherwise(sf.col("instance"))
    return sf.coalesce(sf.try_element_at(instances, name).cast("int"), number)


def _name(column: str, decode: Callable[[str], str | None] | None) -> Column:
    """Return a name, or null where it is no text or cannot be decoded."""
    text = sf.when(sf.is_valid_utf8(column), sf.col(column))
    if decode is None:
        return text

    @arrow_udf(StringType())
    def decoded(tags: pa.Array) -> pa.Array:
        encoded = tags.dictionary_encode()
        names = [decode(tag) for tag in encoded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(encoded.indices)

    return decoded(text)


def _problem(rules: Rules, earlier: Column) -> Column:
    """Return the first problem of a point, null where it is fine."""
    ts, value, attribute = sf.col("ts"), sf.col("value"), sf.col("attribute")
    outside = sf.lit(False)
    if rules.since_us is not None:
        outside = outside | (ts < rules.since_us)
    if rules.until_us is not None:
        outside = outside | (ts >= rules.until_us)
    # An idle throttle time is NaN: nothing was throttled. Source: ``Avg.measure``.
    is_nan = sf.isnan(value)
    no_name = sf.col("user").isNull() | sf.col("client_id").isNull() | sf.col("cluster").isNull()
    return (
        sf.when(outside | (attribute == UTILIZATION), LEFT_OUT)
        .when(earlier.isNotNull(), earlier)
        .when(ts.isNull() | value.isNull(), UNPARSABLE)
        .when(attribute.isNull(), UNKNOWN_METRIC)
        .when(sf.col("broker_id").isNull(), MISSING_BROKER)
        .when(no_name, UNDECODABLE)
        .when(is_nan & (attribute != THROTTLE), "nan")
        .when(value.isin(float("inf"), float("-inf")), "infinite")
        .when(~is_nan & (value >= LARGEST), "too-large")
        .when((value < 0) & attribute.isin(RATE, THROTTLE), "negative")
    )
