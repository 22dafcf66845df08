"""``broker_commit``: limits and use of each broker's buckets beside its capacity."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.quota_keys import TWO_TO_63, QuotaKey
from app.pipeline.advice.capacity import Capacity, capacity_of
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.use import (
    MOST_DAYS,
    exact_decimals,
    grouped,
    groups_of,
    in_order,
    minutes_of_hours,
    uses_on_brokers,
)
from app.pipeline.usage.measures import Numbers, hours_of_epoch

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
_WEIGHTS: Final = [1] * MOST_DAYS
_ROWS_AT_ONCE: Final = 50_000
"""Hours whose minutes are spread at once."""


def commit_rows(
    evidence: Evidence, capacities: Mapping[int, Capacity], factor: float
) -> Iterator[dict[str, Any]]:
    """Yield rows of ``BROKER_COMMIT``.

    The factor is how many replicas a partition has, where the capacity does not say.
    """
    promised: dict[str, dict[int, _Promised]] = defaultdict(lambda: defaultdict(dict))
    for row in _sums_of(evidence.map_buckets(promises_of)).to_pylist():
        of_broker = promised[row["cluster_id"]][row["broker_id"]]
        of_broker[row["key"]] = {name: float(row[name]) for name in _SUMS}
    has_direction = pc.field("key").isin(_KEYS)
    minutes = evidence.bucket_hours.map(lambda hours: minute_sums(hours.filter(has_direction)))
    for cluster, brokers in sorted(promised.items()):
        since, until = evidence.period(cluster)
        own = {broker: capacity_of(capacities, broker) for broker in sorted(brokers)}
        factors = {broker: own[broker].replication_factor or factor for broker in own}
        produced = {broker: brokers[broker].get(_PRODUCE, _NOTHING) for broker in own}
        # Followers are spread evenly.
        to_each = [
            sum((factors[each] - 1) * produced[each][name] for each in own) / len(own)
            for name in _COPIED
        ]
        needed = dict(_percentiles(minutes.filter(pc.field("cluster_id") == cluster), factors))
        for broker, capacity in own.items():
            sent = [(factors[broker] - 1) * produced[broker][name] for name in _COPIED]
            threads = capacity.threads and capacity.threads * 100
            for direction, key, most, copied in (
                ("in", _PRODUCE, capacity.nic_in, to_each),
                ("out", _FETCH, capacity.nic_out, sent),
                ("request", _REQUEST, threads, (0.0, 0.0)),
            ):
                of_key = brokers[broker].get(key, _NOTHING)
                limits, units = of_key["limits"] + copied[0], of_key["units"]
                sums = {
                    "limits": limits,
                    "p99_sum": of_key["p99s"] + copied[1],
                    "p99_of_sums": needed.get((broker, direction), 0.0),
                }
                yield {
                    "cluster_id": cluster,
                    "broker_id": broker,
                    "direction": direction,
                    "capacity": most,
                    "limits_sum": limits,
                    **sums,
                    **{f"{name}_ratio": most and value / most for name, value in sums.items()},
                    "unlimited_share": of_key["unlimited_units"] / units if units else None,
                    "buckets": int(of_key["buckets"]),
                    "unlimited_buckets": int(of_key["unlimited"]),
                    "replication_factor": factors[broker],
                    "over": most and limits > most,
                    "since": since,
                    "until": until,
                }


_Promised = dict[str, Mapping[str, float]]
"""The ``_SUMS`` of a broker's buckets, by key."""

_OF_KEY: Final = ("cluster_id", "broker_id", "key")
_SUMS: Final = ("limits", "p99s", "buckets", "unlimited", "units", "unlimited_units")
_COPIED: Final = _SUMS[:2]
_NOTHING: Final = dict.fromkeys(_SUMS, 0.0)


def promises_of(hours: pa.Table) -> pa.Table:
    """Return what some buckets have and use of each key on each broker, from all of their hours.

    Their sums are the same in any order: of ``limits`` and ``p99s`` with six digits, of ``units``
    and ``unlimited_units`` in whole 10^-3.
    """
    uses = uses_on_brokers(in_order(hours), _PERCENT, _WEIGHTS)
    is_limited, limits = _limited(uses), uses["limit"].to_numpy()
    of_uses = {
        "limits": exact_decimals(np.where(is_limited, limits, 0.0), 6),
        "p99s": exact_decimals(uses["rate"].to_numpy(), 6),
        "buckets": pa.array(np.ones(uses.num_rows, np.int64)),
        "unlimited": pa.array((~is_limited).astype(np.int64)),
    }
    units = np.rint(hours["rate_avg"].to_numpy() * hours["minutes"].to_numpy() * 1000)
    of_hours = {
        "units": exact_decimals(units),
        "unlimited_units": exact_decimals(np.where(_limited(hours), 0.0, units)),
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


def _percentiles(
    minutes: pa.Table, factors: Mapping[int, float]
) -> Iterator[tuple[tuple[int, str], float]]:
    """Yield the percentile of each broker of a cluster, by direction.

    Args:
        minutes: Of the cluster, as ``minute_sums`` returns them; several of the same are added up.
        factors: How many replicas what is produced to each broker has, in order of the brokers.
    """
    time = hours_of_epoch(minutes) * _MINUTES + minutes["minute"].to_numpy()
    times, at = np.unique(time, return_inverse=True)
    broker = np.searchsorted([*factors], minutes["broker_id"].to_numpy())
    totals, is_there = {}, np.zeros((len(factors), len(times)), bool)
    is_there[broker, at] = True
    for key in _KEYS:
        rows = np.flatnonzero(pc.equal(minutes["key"], key))
        whole = np.zeros(is_there.shape, np.int64)
        np.add.at(whole, (broker[rows], at[rows]), minutes["total"].to_numpy()[rows])
        totals[key] = whole / _SCALE
    produced = zip(factors.values(), totals[_PRODUCE], strict=True)
    copied = [(factor - 1) * each for factor, each in produced]
    # In the order of brokers: sums of binary fractions depend on it.
    to_each = sum(copied, np.zeros(len(times))) / len(factors)
    for number, name in enumerate(factors):
        there = is_there[number]
        directions = {
            "in": totals[_PRODUCE][number] + to_each,
            "out": totals[_FETCH][number] + copied[number],
            "request": totals[_REQUEST][number],
        }
        rank = -(-_PERCENT * int(there.sum()) // 100) - 1
        if rank >= 0:
            for direction, values in directions.items():
                yield (name, direction), float(np.sort(values[there])[rank])


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
        row, minute, rates = minutes_of_hours(hours.slice(begin, _ROWS_AT_ONCE))
        at = groups[begin + row] * _MINUTES + minute
        whole = np.rint(np.minimum(rates, _MOST) * _SCALE)
        np.add.at(totals, at, whole.astype(np.int64))
        is_there[at] = True
    found = np.flatnonzero(is_there)
    sums = hours.select(same).take(firsts[found // _MINUTES])
    sums = sums.append_column("minute", pa.array((found % _MINUTES).astype(np.int32)))
    return sums.append_column("total", pa.array(totals[found]))
