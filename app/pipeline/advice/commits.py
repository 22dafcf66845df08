"""``broker_commit``: limits and use of each broker's buckets beside its capacity."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.quota_keys import TWO_TO_63, QuotaKey
from app.pipeline.advice.capacity import Capacity, capacity_of
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.use import (
    MOST_DAYS,
    UseOnBrokers,
    exact_decimals,
    grouped,
    groups_of,
    hours_of_epoch,
    rates_of_bins,
)
from app.pipeline.usage.measures import Numbers, whole_numbers

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


_OF_KEY: Final = ("cluster_id", "broker_id", "key")
_SUMS: Final = ("limits", "p99s", "buckets", "unlimited", "units", "unlimited_units")


def _promised(evidence: Evidence) -> dict[_Broker, dict[str, _Promised]]:
    """Return what each broker's buckets have and use, by key."""
    found: dict[_Broker, dict[str, _Promised]] = defaultdict(dict)
    for row in _sums_of(evidence.map_buckets(promises_of)).to_pylist():
        promised = _Promised(
            limits=int(row["limits"]) / _MICRO,
            p99s=int(row["p99s"]) / _MICRO,
            buckets=int(row["buckets"]),
            unlimited=int(row["unlimited"]),
            units=float(row["units"]),
            unlimited_units=float(row["unlimited_units"]),
        )
        found[row["cluster_id"], row["broker_id"]][row["key"]] = promised
    return found


def promises_of(hours: pa.Table) -> pa.Table:
    """Return what some buckets have and use of each key on each broker, from all of their hours.

    Sums are whole numbers, which add up the same in any order: ``limits`` and ``p99s`` in 10^-6 of
    the key's unit, ``units`` and ``unlimited_units`` in 10^-3.
    """
    uses = UseOnBrokers.of(hours).table(_PERCENT, _WEIGHTS)
    is_limited, limits = _limited(uses), uses["limit"].to_numpy()
    of_uses = {
        "limits": _exact(np.where(is_limited, limits, 0.0)),
        "p99s": _exact(uses["rate"].to_numpy()),
        "buckets": exact_decimals(np.ones(uses.num_rows, np.int64)),
        "unlimited": exact_decimals((~is_limited).astype(np.int64)),
    }
    minutes = hours["minutes"].to_numpy().astype(float)
    units = whole_numbers(hours["rate_avg"].to_numpy() * minutes * 1000)
    of_hours = {
        "units": exact_decimals(units),
        "unlimited_units": exact_decimals(np.where(_limited(hours), 0, units)),
    }
    both = [
        pa.table({**{name: rows[name] for name in _OF_KEY}, **columns})
        for rows, columns in ((uses, of_uses), (hours, of_hours))
    ]
    return _sums_of(pa.concat_tables(both, promote_options="default"))


def _sums_of(promises: pa.Table) -> pa.Table:
    return grouped(promises, _OF_KEY, dict.fromkeys(_SUMS, "sum"))


def _limited(rows: pa.Table) -> Numbers:
    """Tell which limits a rate can be above; NaN and null are none."""
    limit, level = rows["limit"].to_numpy(), rows["level"].to_numpy()
    found: Numbers = (level > 0) & (limit > 0) & (limit < TWO_TO_63)
    return found


def _exact(values: Numbers) -> pa.Array:
    """Return numbers as whole 10^-6, rounded as decimal numbers are."""
    different, positions = np.unique(values, return_inverse=True)
    whole = [
        int(Decimal(repr(value)).scaleb(6, _WIDE).to_integral_value(ROUND_HALF_UP, _WIDE))
        for value in different.tolist()
    ]
    return exact_decimals(np.array(whole, object)).take(pa.array(positions))


def _needed(evidence: Evidence, factors: Mapping[_Broker, float]) -> dict[Any, float]:
    """Return by broker and direction the 99th percentile of the minutes' sums."""
    has_direction = pc.field("key").isin(_KEYS)
    minutes = evidence.bucket_hours.map(lambda hours: minute_sums(hours.filter(has_direction)))
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
        minutes: Of the cluster, as ``minute_sums`` returns them; several of the same are added up.
        factors: How many replicas what is produced to each broker has.
    """
    time = hours_of_epoch(minutes) * _MINUTES + minutes["minute"].to_numpy()
    times, at = np.unique(time, return_inverse=True)
    brokers = sorted(factors)
    broker = np.searchsorted(brokers, minutes["broker_id"].to_numpy())
    totals, is_there = {}, np.zeros((len(brokers), len(times)), bool)
    is_there[broker, at] = True
    for key in _KEYS:
        rows = np.flatnonzero(pc.equal(minutes["key"], key))
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


def minute_sums(hours: pa.Table) -> pa.Table:
    """Return the sums of the rates of each minute, broker and key of some hours of buckets.

    Returns:
        ``cluster_id, dt, hour, broker_id, key, minute``, and ``total`` in 10^-4 units.
    """
    same = ["cluster_id", "dt", "hour", "broker_id", "key"]
    groups, firsts = groups_of(hours, same)
    totals = np.zeros(len(firsts) * _MINUTES, np.int64)
    is_there = np.zeros(len(totals), bool)
    for begin in range(0, hours.num_rows, _ROWS_AT_ONCE):
        share = hours.slice(begin, _ROWS_AT_ONCE).combine_chunks()
        bits = (share["present"].to_numpy()[:, None] >> np.arange(_MINUTES)) & 1
        row, minute = np.nonzero(bits)
        at = groups[begin + row] * _MINUTES + minute
        rates = np.minimum(rates_of_bins(share["bins"].combine_chunks().flatten()), _MOST)
        np.add.at(totals, at, np.rint(rates * _SCALE).astype(np.int64))
        is_there[at] = True
    found = np.flatnonzero(is_there)
    sums = hours.select(same).take(firsts[found // _MINUTES])
    sums = sums.append_column("minute", pa.array((found % _MINUTES).astype(np.int32)))
    return sums.append_column("total", pa.array(totals[found]))
