"""``broker_commit``: limits and use of each broker's buckets beside its capacity."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf

from app.domain.quota_keys import TWO_TO_63, QuotaKey
from app.pipeline.advice.capacity import Capacity, capacity_of
from app.pipeline.advice.evidence import (
    MOST_DAYS,
    Evidence,
    UseOnBrokers,
    arrow_schema_of,
    bin_rates,
    hours_of_epoch,
    map_buckets,
)
from app.pipeline.tables import BUCKET_HOUR
from app.pipeline.usage.measures import Numbers, begins_of, ranks_of, whole_numbers

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
_MICRO: Final = 1_000_000
_WIDE: Final = Context(prec=400)
_WEIGHTS: Final = [1] * MOST_DAYS
_ROWS_AT_ONCE: Final = 50_000
"""Hours whose minutes are spread at once."""


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


_SUMS: Final = ("limits", "p99s", "units", "unlimited_units")
_COUNTS: Final = ("buckets", "unlimited")
_PROMISE_DDL: Final = """cluster_id string, broker_id int, key string, limits decimal(38, 0),
    p99s decimal(38, 0), units decimal(38, 0), unlimited_units decimal(38, 0), buckets bigint,
    unlimited bigint"""
"""What some buckets have and use: ``limits`` and ``p99s`` in 10^-6 of the key's unit, ``units`` in
10^-3."""


_PROMISES: Final = pa.schema(
    [
        *(("cluster_id", pa.string()), ("broker_id", pa.int32()), ("key", pa.string())),
        *((name, pa.decimal128(38, 0)) for name in _SUMS),
        *((name, pa.int64()) for name in _COUNTS),
    ]
)
"""The same of Arrow: tasks have no Spark that would translate it."""


def _promised(evidence: Evidence) -> dict[_Broker, dict[str, _Promised]]:
    """Return what each broker's buckets have and use, by key."""
    totals: dict[tuple[str, int, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in map_buckets(evidence, promises_of, _PROMISE_DDL).to_pylist():
        position = (row["cluster_id"], row["broker_id"], row["key"])
        for name in (*_SUMS, *_COUNTS):
            totals[position][name] += int(row[name])
    found: dict[_Broker, dict[str, _Promised]] = defaultdict(dict)
    for (cluster, broker, key), sums in totals.items():
        found[cluster, broker][key] = _Promised(
            limits=sums["limits"] / _MICRO,
            p99s=sums["p99s"] / _MICRO,
            buckets=sums["buckets"],
            unlimited=sums["unlimited"],
            units=float(sums["units"]),
            unlimited_units=float(sums["unlimited_units"]),
        )
    return found


def promises_of(hours: pa.Table) -> pa.Table:
    """Return the columns of ``_PROMISE_DDL`` of all hours of some buckets.

    Sums are whole numbers, which add up the same in any order.
    """
    uses = UseOnBrokers.of(hours).table(_PERCENT, _WEIGHTS)
    is_limited, limits = _limited(uses), uses["limit"].to_numpy()
    of_uses = {
        "limits": _exact(np.where(is_limited, limits, 0.0)),
        "p99s": _exact(uses["rate"].to_numpy()),
        "buckets": np.ones(uses.num_rows, object),
        "unlimited": (~is_limited).astype(object),
    }
    minutes = hours["minutes"].to_numpy().astype(float)
    units = whole_numbers(hours["rate_avg"].to_numpy() * minutes * 1000)
    of_hours = {"units": units, "unlimited_units": np.where(_limited(hours), 0, units)}
    sums: dict[tuple[str, int, str], dict[str, int]] = defaultdict(dict)
    for rows, columns in ((uses, of_uses), (hours, of_hours)):
        order, begins = _by_broker_and_key(rows)
        firsts = rows.select(["cluster_id", "broker_id", "key"]).take(order[begins]).to_pylist()
        for name, column in columns.items():
            totals = np.add.reduceat(column[order], begins)
            for first, total in zip(firsts, totals.tolist(), strict=True):
                sums[first["cluster_id"], first["broker_id"], first["key"]][name] = int(total)
    found = [
        {"cluster_id": cluster, "broker_id": broker, "key": key, **each}
        | {name: Decimal(each[name]) for name in _SUMS}
        for (cluster, broker, key), each in sums.items()
    ]
    return pa.Table.from_pylist(found, _PROMISES)


def _limited(rows: pa.Table) -> Numbers:
    """Tell which limits a rate can be above; NaN and null are none."""
    limit, level = rows["limit"].to_numpy(), rows["level"].to_numpy()
    found: Numbers = (level > 0) & (limit > 0) & (limit < TWO_TO_63)
    return found


def _exact(values: Numbers) -> Numbers:
    """Return numbers as whole 10^-6, rounded as decimal numbers are, of any size."""
    different, positions = np.unique(values, return_inverse=True)
    whole = [
        int(Decimal(repr(value)).scaleb(6, _WIDE).to_integral_value(ROUND_HALF_UP, _WIDE))
        for value in different.tolist()
    ]
    return np.array(whole, object)[positions]


def _by_broker_and_key(rows: pa.Table) -> tuple[Numbers, Numbers]:
    """Return an order of rows by cluster, broker and key, and where each of them begins."""
    names = [ranks_of(rows[name]) for name in ("cluster_id", "key")]
    columns = [names[0], rows["broker_id"].to_numpy(), names[1]]
    order = np.lexsort(columns[::-1])
    return order, begins_of(*(column[order] for column in columns))


_SUM_DDL: Final = """cluster_id string, dt date, hour int, broker_id int, key string, minute int,
    total bigint"""
_MINUTE_NAMES: Final = ("cluster_id", "dt", "hour", "broker_id", "key", "present", "bins")


def _needed(evidence: Evidence, factors: Mapping[_Broker, float]) -> dict[Any, float]:
    """Return by broker and direction the 99th percentile of the minutes' sums."""
    here = evidence.bucket_hours()
    if here is None:
        hours = evidence.read(BUCKET_HOUR).where(sf.col("key").isin(list(_KEYS)))
        sums = hours.select(*_MINUTE_NAMES).mapInArrow(_minute_sums_of_batches, _SUM_DDL)
        same = [name.split()[0] for name in _SUM_DDL.split(",")][:-1]
        minutes = sums.groupBy(*same).agg(sf.sum("total").alias("total")).toArrow()
    else:
        chosen = here.select(_MINUTE_NAMES).filter(pc.field("key").isin(_KEYS))
        minutes = pa.Table.from_batches(
            _minute_sums_of_batches(chosen.to_batches(max_chunksize=_ROWS_AT_ONCE)),
            arrow_schema_of(_SUM_DDL),
        )
    return {
        (cluster, broker, direction): value
        for cluster in {name for name, _ in factors}
        for (broker, direction), value in _percentiles(
            minutes.filter(pc.field("cluster_id") == cluster),
            {broker: factor for (name, broker), factor in factors.items() if name == cluster},
        )
    }


def _percentiles(
    minutes: pa.Table, factors: Mapping[int, float]
) -> Iterator[tuple[tuple[int, str], float]]:
    """Yield the percentile of each broker of a cluster, by direction.

    Args:
        minutes: Of the cluster, as ``_SUM_DDL``; several of the same are added up.
        factors: How many replicas what is produced to each broker has.
    """
    time = hours_of_epoch(minutes) * _MINUTES + minutes["minute"].to_numpy()
    times, at = np.unique(time, return_inverse=True)
    brokers = sorted(factors)
    broker = np.searchsorted(brokers, minutes["broker_id"].to_numpy())
    keys = np.array(minutes["key"].to_pylist(), object)
    totals, is_there = {}, np.zeros((len(brokers), len(times)), bool)
    is_there[broker, at] = True
    for key in _KEYS:
        rows = np.flatnonzero(keys == key)
        whole = np.zeros(is_there.shape, np.int64)
        np.add.at(whole, (broker[rows], at[rows]), minutes["total"].to_numpy()[rows])
        totals[key] = whole / _SCALE
    copies = [factors[each] - 1 for each in brokers]
    replicated = np.zeros(len(times))
    # In the order of brokers: sums of binary fractions depend on it.
    for number, factor in enumerate(copies):
        replicated = replicated + factor * totals[_PRODUCE][number]
    for number, factor in enumerate(copies):
        there = is_there[number]
        directions = {
            "in": totals[_PRODUCE][number] + replicated / len(brokers),
            "out": totals[_FETCH][number] + factor * totals[_PRODUCE][number],
            "request": totals[_REQUEST][number],
        }
        rank = -(-_PERCENT * int(there.sum()) // 100) - 1
        if rank >= 0:
            for direction, values in directions.items():
                yield (brokers[number], direction), float(np.sort(values[there])[rank])


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
