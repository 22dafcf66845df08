"""``broker_commit``: limits and use of each broker's buckets beside its capacity."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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


def commit_rows(
    evidence: Evidence, capacities: Mapping[int, Capacity], factor: float
) -> Iterator[dict[str, Any]]:
    """Yield rows of ``BROKER_COMMIT``.

    The factor is how many replicas a partition has, where the capacity does not say.
    """
    if not evidence.hours:
        return
    promised = _promised(evidence)
    factors = {at: capacity_of(capacities, at[1]).replication_factor or factor for at in promised}
    needed = _needed(evidence, factors)
    for cluster, broker in sorted(promised):
        since, until = evidence.period(cluster)
        of_keys, own = promised[cluster, broker], factors[cluster, broker]
        capacity = capacity_of(capacities, broker)
        produced = of_keys[_PRODUCE]
        for direction, key, most, copied in (
            ("in", _PRODUCE, capacity.nic_in, _copied_to_each(promised, factors, cluster)),
            ("out", _FETCH, capacity.nic_out, [(own - 1) * each for each in produced[:2]]),
            ("request", _REQUEST, capacity.threads and capacity.threads * 100, (0.0, 0.0)),
        ):
            limits, p99s, buckets, unlimited, units, unlimited_units = of_keys[key]
            sums = {
                "limits": limits + copied[0],
                "p99_sum": p99s + copied[1],
                "p99_of_sums": needed.get((cluster, broker, direction), 0.0),
            }
            yield {
                "cluster_id": cluster,
                "broker_id": broker,
                "direction": direction,
                "capacity": most,
                "limits_sum": sums["limits"],
                **sums,
                **{f"{name}_ratio": most and value / most for name, value in sums.items()},
                "unlimited_share": unlimited_units / units if units else None,
                "buckets": int(buckets),
                "unlimited_buckets": int(unlimited),
                "replication_factor": own,
                "over": most and sums["limits"] > most,
                "since": since,
                "until": until,
            }


_Broker = tuple[str, int]
_Promised = Mapping[_Broker, Mapping[str, Sequence[float]]]
"""The ``_SUMS`` of each broker's buckets, by key."""


def _copied_to_each(
    promised: _Promised, factors: Mapping[_Broker, float], cluster: str
) -> Sequence[float]:
    """Return what is replicated to each broker of a cluster: followers are spread evenly."""
    brokers = sorted(at for at in promised if at[0] == cluster)
    copies = [((factors[at] - 1), promised[at][_PRODUCE]) for at in brokers]
    return [sum(factor * each[of] for factor, each in copies) / len(brokers) for of in (0, 1)]


_OF_KEY: Final = ("cluster_id", "broker_id", "key")
_SUMS: Final = ("limits", "p99s", "buckets", "unlimited", "units", "unlimited_units")


def _promised(evidence: Evidence) -> _Promised:
    found: dict[_Broker, dict[str, Sequence[float]]] = defaultdict(
        lambda: defaultdict(lambda: [0.0] * len(_SUMS))
    )
    for row in _sums_of(evidence.map_buckets(promises_of)).to_pylist():
        sums = [float(row[name]) for name in _SUMS[2:]]
        whole = [int(row[name]) / _MICRO for name in _SUMS[:2]]
        found[row["cluster_id"], row["broker_id"]][row["key"]] = [*whole, *sums]
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
