"""``broker_commit``: limits and use of each broker's buckets beside its capacity."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.quota_keys import TWO_TO_63, QuotaKey
from app.pipeline.advice.capacity import Capacity, capacity_of
from app.pipeline.advice.evidence import (
    MOST_DAYS,
    USE_DDL,
    Evidence,
    UseOnBrokers,
    bin_rates,
    map_buckets,
)
from app.pipeline.tables import BUCKET_HOUR
from app.pipeline.usage.measures import Numbers

_PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE.value
_FETCH: Final = QuotaKey.CONSUMER_BYTE_RATE.value
_REQUEST: Final = QuotaKey.REQUEST_PERCENTAGE.value
_KEYS: Final = (_PRODUCE, _FETCH, _REQUEST)
_PERCENT: Final = 99
_SCALE: Final = 10_000
"""Sums are whole numbers of 10^-4 units, so that they do not depend on their order."""

_MOST: Final = 1e13
"""No broker moves more; it keeps the sums of absurd rates within 64 bits."""

_MINUTES: Final = 60
_DECIMAL: Final = "decimal(38, 6)"
_IS_LIMITED: Final = f"level > 0 and limit > 0 and limit < {float(TWO_TO_63)}"
"""Other limits let everything pass; NaN is greater than all."""


@dataclass(frozen=True, slots=True)
class _Promised:
    """What a broker's buckets of one key have and use; sums of all of them."""

    limits: float = 0.0
    p99s: float = 0.0
    buckets: int = 0
    unlimited: int = 0
    units: float = 0.0
    unlimited_units: float = 0.0


def commit_rows(
    evidence: Evidence, capacities: Mapping[int, Capacity], factor: float
) -> Iterator[dict[str, Any]]:
    """Yield rows of ``BROKER_COMMIT``.

    Args:
        evidence: Has hours of buckets.
        capacities: Of brokers by id.
        factor: How many replicas a partition has, where the capacity does not say.
    """
    if not evidence.hours:
        return
    promised = _promised(evidence)
    factors = {
        position: capacity_of(capacities, position[1]).replication_factor or factor
        for position in promised
    }
    needed = _needed(evidence, factors)
    for cluster, broker in sorted(promised):
        since, until = evidence.period(cluster)
        of_keys, own = promised[cluster, broker], factors[cluster, broker]
        capacity = capacity_of(capacities, broker)
        replicated = _replicated_to_each(promised, factors, cluster)
        for direction, key, most in (
            ("in", _PRODUCE, capacity.nic_in),
            ("out", _FETCH, capacity.nic_out),
            ("request", _REQUEST, capacity.threads and capacity.threads * 100),
        ):
            found = of_keys.get(key, _Promised())
            produced = of_keys.get(_PRODUCE, _Promised())
            more = {
                "in": replicated,
                "out": ((own - 1) * produced.limits, (own - 1) * produced.p99s),
                "request": (0.0, 0.0),
            }[direction]
            sums = {
                "limits": found.limits + more[0],
                "p99_sum": found.p99s + more[1],
                "p99_of_sums": needed.get((cluster, broker, direction), 0.0),
            }
            yield {
                "cluster_id": cluster,
                "broker_id": broker,
                "direction": direction,
                "capacity": most,
                "limits_sum": sums["limits"],
                "p99_sum": sums["p99_sum"],
                "p99_of_sums": sums["p99_of_sums"],
                **{f"{name}_ratio": most and value / most for name, value in sums.items()},
                "unlimited_share": found.unlimited_units / found.units if found.units else None,
                "buckets": found.buckets,
                "unlimited_buckets": found.unlimited,
                "replication_factor": own,
                "over": most and sums["limits"] > most,
                "since": since,
                "until": until,
            }


_Broker = tuple[str, int]


def _replicated_to_each(
    promised: Mapping[_Broker, Mapping[str, _Promised]],
    factors: Mapping[_Broker, float],
    cluster: str,
) -> tuple[float, float]:
    """Return what is replicated to each broker of a cluster: followers are spread evenly."""
    brokers = sorted(position for position in promised if position[0] == cluster)
    produced = [(factors[each] - 1, promised[each].get(_PRODUCE, _Promised())) for each in brokers]
    limits = sum(copies * each.limits for copies, each in produced)
    p99s = sum(copies * each.p99s for copies, each in produced)
    return limits / len(brokers), p99s / len(brokers)


def _promised(evidence: Evidence) -> dict[_Broker, dict[str, _Promised]]:
    """Return what each broker's buckets have and use, by key."""
    weights = [1] * MOST_DAYS

    def uses_of(hours: pa.Table) -> pa.Table:
        return UseOnBrokers.of(hours).table(_PERCENT, weights)

    uses = map_buckets(evidence, uses_of, USE_DDL)
    is_limited = sf.expr(_IS_LIMITED)
    of_key = ("cluster_id", "broker_id", "key")
    sums = uses.groupBy(*of_key).agg(
        sf.sum(sf.when(is_limited, sf.col("limit").cast(_DECIMAL))).alias("limits"),
        sf.sum(sf.col("rate").cast(_DECIMAL)).alias("p99s"),
        sf.count(sf.lit(1)).alias("buckets"),
        sf.count_if(~sf.coalesce(is_limited, sf.lit(False))).alias("unlimited"),
    )
    units = sf.expr("cast(round(rate_avg * minutes * 1000) as decimal(38, 0))")
    traffic = evidence.read(BUCKET_HOUR).withColumn("units", units)
    of_traffic = traffic.groupBy(*of_key).agg(
        sf.sum("units").alias("units"),
        sf.sum(sf.when(is_limited, sf.lit(0)).otherwise(sf.col("units"))).alias("unlimited_units"),
    )
    found: dict[_Broker, dict[str, _Promised]] = defaultdict(dict)
    for row in sums.join(of_traffic, list(of_key)).toArrow().to_pylist():
        cluster, broker, key = (row.pop(name) for name in of_key)
        figures = {name: value or 0 for name, value in row.items()}
        sums_of: dict[str, Any] = {name: float(value) for name, value in figures.items()}
        counts = {name: int(figures[name]) for name in ("buckets", "unlimited")}
        found[cluster, broker][key] = _Promised(**{**sums_of, **counts})
    return found


_SUM_DDL: Final = """cluster_id string, dt date, hour int, broker_id int, key string, minute int,
    total bigint"""


def _needed(evidence: Evidence, factors: Mapping[_Broker, float]) -> dict[Any, float]:
    """Return by broker and direction the 99th percentile of the minutes' sums."""
    names = ["cluster_id", "dt", "hour", "broker_id", "key", "present", "bins"]
    hours = evidence.read(BUCKET_HOUR).where(sf.col("key").isin(list(_KEYS))).select(*names)
    minutes = hours.mapInArrow(_minute_sums_of_batches, _SUM_DDL)
    at = ("cluster_id", "dt", "hour", "minute")
    pivot = {
        name: f"cast(coalesce(sum(case when key = '{key}' then total end), 0) as double) / {_SCALE}"
        for name, key in (("produce", _PRODUCE), ("fetch", _FETCH), ("request", _REQUEST))
    }
    of_broker = minutes.groupBy(*at, "broker_id").agg(
        *(sf.expr(text).alias(name) for name, text in pivot.items())
    )
    with_factors = _with_factors(of_broker, factors)
    directions = with_factors.selectExpr(
        "cluster_id",
        "broker_id",
        "produce + sum((factor - 1) * produce) over (partition by cluster_id, dt, hour, minute "
        "order by broker_id rows between unbounded preceding and unbounded following) / brokers "
        "as `in`",
        "fetch + (factor - 1) * produce as `out`",
        "request",
    )
    found = directions.groupBy("cluster_id", "broker_id").agg(
        *(
            sf.expr(f"percentile_disc({_PERCENT / 100}) within group (order by `{name}`)").alias(
                name
            )
            for name in ("in", "out", "request")
        )
    )
    return {
        (row["cluster_id"], row["broker_id"], name): row[name]
        for row in found.toArrow().to_pylist()
        for name in ("in", "out", "request")
    }


def _with_factors(minutes: DataFrame, factors: Mapping[_Broker, float]) -> DataFrame:
    brokers = [
        (cluster, broker, factor, sum(1 for other, _ in factors if other == cluster))
        for (cluster, broker), factor in sorted(factors.items())
    ]
    ddl = "cluster_id string, broker_id int, factor double, brokers int"
    table = minutes.sparkSession.createDataFrame(brokers, ddl)
    return minutes.join(sf.broadcast(table), ["cluster_id", "broker_id"])


def _minute_sums_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield minute_sums(batch)


def minute_sums(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Sum up the rates of each minute, broker and key of a batch of hours."""
    rows = pa.table(batch).select(["cluster_id", "dt", "hour", "broker_id", "key"])
    slots = rows.append_column("row", pa.array(np.arange(batch.num_rows)))
    groups = slots.group_by(rows.column_names).aggregate([("row", "min")])
    numbers = slots.join(groups, rows.column_names).sort_by("row")["row_min"].to_numpy()
    firsts = np.unique(numbers)
    slot = np.searchsorted(firsts, numbers)
    present = batch["present"].to_numpy()
    bits: Numbers = (present[:, None] >> np.arange(_MINUTES)) & 1
    row, minute = np.nonzero(bits)
    totals = np.zeros(len(firsts) * _MINUTES, np.int64)
    np.add.at(totals, slot[row] * _MINUTES + minute, _scaled(batch["bins"].flatten().to_numpy()))
    there = np.zeros(len(totals), bool)
    there[slot[row] * _MINUTES + minute] = True
    at = np.flatnonzero(there)
    taken = rows.take(firsts[at // _MINUTES])
    columns: Sequence[Any] = [
        *taken.columns,
        pa.array((at % _MINUTES).astype(np.int32)),
        pa.array(totals[at]),
    ]
    table = pa.table(dict(zip([*rows.column_names, "minute", "total"], columns, strict=True)))
    return table.combine_chunks().to_batches()[0]


def _scaled(bins: Numbers) -> Numbers:
    numbers, positions = np.unique(bins, return_inverse=True)
    rates = np.minimum(bin_rates(numbers), _MOST)
    scaled: Numbers = np.rint(rates * _SCALE).astype(np.int64)[positions]
    return scaled
