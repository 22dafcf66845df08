"""``uncovered_client``: who uses most without a value of their own."""

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.right_sizes import SizingRules, allowed_value, alteration_body
from app.pipeline.advice.evidence import Evidence, tags_of
from app.pipeline.advice.output import quota_columns
from app.pipeline.advice.use import exact_decimals, grouped
from app.pipeline.tables import UTILIZATION_DAILY
from app.pipeline.usage.measures import begins_of, ends_of, ranks_of

_UNCOVERED: Final = (0, 5, 6, 8)
"""Levels of no value, and of values for everybody."""


def uncovered_rows(evidence: Evidence, top: int, rules: SizingRules) -> Iterator[dict[str, Any]]:
    """Yield rows of ``UNCOVERED_CLIENT``: of each cluster and key those that used most."""
    for row in tags_of(evidence, _largest(evidence, top)).to_pylist():
        since, until = evidence.period(row["cluster_id"])
        user, client_id = row["bucket_user"], row["bucket_client"]
        quota = entity_at(row["level"], user, client_id)
        names = {"user": user, "client-id": client_id}
        own = ClientQuotaEntity.of({kind: name for kind, name in names.items() if name})
        value = allowed_value(row["key"], row["p99"] * (1 + rules.margin))
        reason = "Nothing limits it." if quota is None else f"{quota} limits it, as all others."
        body = alteration_body(own, row["key"], value, None, f"uncovered: {reason}")
        yield {
            **row,
            **quota_columns(quota),
            "reason": reason,
            "value": value,
            "since": since,
            "until": until,
            "body": json.dumps(body, ensure_ascii=False) if own.entries else None,
        }


def _largest(evidence: Evidence, top: int) -> pa.Table:
    """Return those without a value of their own that used most of each key."""
    days = evidence.rows(UTILIZATION_DAILY, _OF_DAY)
    used = _sums_of(days.map(lambda share: _sums_of(_units_of(share))))
    ranked = _ranked(used, top)
    chosen = days.of_buckets(ranked["bucket_id"]).map(_on_brokers)
    return _described(chosen, ranked)


def _on_brokers(days: pa.Table) -> pa.Table:
    return days.filter(pc.field("broker_id").is_valid())


_OF_DAY: Final = (
    *("cluster_id", "dt", "broker_id", "key", "bucket_id", "level", "limit", "minutes_present"),
    *("bytes", "p50", "p99", "peak"),
)
_OF_KEY: Final = ("cluster_id", "key")
_OF_BUCKET: Final = (*_OF_KEY, "bucket_id")
_LEVELS: Final = 16


def _units_of(days: pa.Table) -> pa.Table:
    """Return what buckets used, in whole bytes or thousandths of other units, and at which level.

    ``last`` is the level, below the number of day and broker.
    """
    here = _on_brokers(days)
    other = here["p50"].to_numpy() * here["minutes_present"].to_numpy() * 1000
    units = pc.coalesce(here["bytes"].cast(pa.float64()), pa.array(other)).to_numpy()
    day = here["dt"].cast(pa.int32()).to_numpy().astype(np.int64)
    last = ((day << 32) + here["broker_id"].to_numpy()) * _LEVELS + here["level"].to_numpy()
    columns = {"units": exact_decimals(np.rint(units)), "last": pa.array(last)}
    return pa.table({name: here[name] for name in _OF_BUCKET} | columns)


def _sums_of(units: pa.Table) -> pa.Table:
    return grouped(units, ["bucket_id"], {"units": "sum", "last": "max"}, _OF_KEY)


def _ranked(used: pa.Table, top: int) -> pa.Table:
    """Return ``bucket_id`` and ``share`` of those of each cluster and key that used most."""
    totals = grouped(used, _OF_KEY, {"units": "sum"}).to_pylist()
    of_key = {(row["cluster_id"], row["key"]): float(row["units"]) for row in totals}
    is_open = np.isin(used["last"].to_numpy() % _LEVELS, _UNCOVERED)
    by = [("cluster_id", "ascending"), ("key", "ascending")]
    by += [("units", "descending"), ("bucket_id", "ascending")]
    rows = used.filter(pc.and_(pa.array(is_open), pc.greater(used["units"], 0))).sort_by(by)
    begins = begins_of(*(ranks_of(rows[name]) for name in _OF_KEY))
    first = np.repeat(begins, np.diff(begins, append=len(rows)))
    largest = rows.filter(pa.array(np.arange(len(rows)) - first < top))
    shares = [
        float(row["units"]) / of_key[row["cluster_id"], row["key"]] for row in largest.to_pylist()
    ]
    return largest.select(["bucket_id"]).append_column("share", pa.array(shares, pa.float64()))


def _described(days: pa.Table, ranked: pa.Table) -> pa.Table:
    """Return what the chosen buckets used, from all of their days on brokers."""
    last, busiest = (_last_by(days, *by) for by in (("dt", "broker_id"), ("p99", "broker_id")))
    how = {"bytes": "sum", "minutes_present": "sum", "peak": "max", "dt": "count_distinct"}
    sums = grouped(days, ["bucket_id"], how).sort_by("bucket_id")
    return pa.table(
        {
            **{name: last[name] for name in (*_OF_BUCKET, "level", "limit")},
            **{name: busiest[name] for name in ("broker_id", "p99")},
            **{name: sums[name] for name in ("bytes", "peak")},
            "share": ranked.sort_by("bucket_id")["share"],
            "minutes": sums["minutes_present"],
            "days": sums["dt"],
            "last_day": last["dt"],
        }
    )


def _last_by(days: pa.Table, *by: str) -> pa.Table:
    """Return the last row of each bucket, in order of the buckets."""
    ordered = days.sort_by([(name, "ascending") for name in ("bucket_id", *by)])
    begins = begins_of(ordered["bucket_id"].to_numpy())
    return ordered.take(ends_of(begins, len(ordered)))
