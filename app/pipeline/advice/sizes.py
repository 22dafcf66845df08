"""``recommendation``: what each bucket used on its busiest broker, and what follows from it."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.right_sizes import BucketUse, RightSize, SizingRules
from app.pipeline.advice.backtest import Values, back_test
from app.pipeline.advice.evidence import (
    Evidence,
    UseOnBrokers,
    grouped_hours,
    quota_columns,
    tags_of,
)
from app.pipeline.usage.measures import Numbers, begins_of

_DDL: Final = """cluster_id string, key string, bucket_id bigint, broker_id int, level tinyint,
    limit double, minutes bigint, throttled_minutes bigint, coverage double, p95 double,
    rate double, peak double, median double, cluster_total double, brokers int, days int"""
"""What a bucket used on its busiest broker; minutes are those of all, ``level`` and ``limit`` those
of its last hour."""


def uses_of(
    evidence: Evidence, rules: SizingRules, halving_days: float | None
) -> dict[str, list[BucketUse]]:
    """Return by cluster what each bucket used that a stored value limits."""
    weights, percent = evidence.weights(halving_days), rules.percentile

    def busiest_of(hours: pa.Table) -> pa.Table:
        return busiest_brokers(hours, percent, weights)

    busiest = grouped_hours(evidence).applyInArrow(busiest_of, _DDL)
    limited = busiest.where("level > 0 and limit is not null")
    rows = limited.join(tags_of(evidence), ["cluster_id", "bucket_id"]).toArrow().to_pylist()
    found: dict[str, list[BucketUse]] = defaultdict(list)
    for row in rows:
        found[row["cluster_id"]].append(_use(row))
    return found


def _use(row: dict[str, Any]) -> BucketUse:
    figures = {name: row[name] for name in row if name not in _NAMES}
    user, client_id = row["bucket_user"], row["bucket_client"]
    entity = entity_at(row["level"], user, client_id) or ClientQuotaEntity.of({})
    return BucketUse(user=user, client_id=client_id, entity=entity, **figures)


_NAMES: Final = ("cluster_id", "bucket_user", "bucket_client")


def busiest_brokers(hours: pa.Table, percent: int, weights: Sequence[int]) -> pa.Table:
    """Return the columns of ``_DDL`` of a group of ``grouped_hours``.

    Hours under another limit than that of the last do not count: who was throttled by it used less
    than it wanted, and has been measured again since.
    """
    on_brokers = _under_last_limit(UseOnBrokers.of(hours))
    uses = on_brokers.table(percent, weights)
    rate, broker = (uses[name].to_numpy() for name in ("rate", "broker_id"))
    key = on_brokers.key[on_brokers.begins]
    bucket = uses["bucket_id"].to_numpy()
    begins = begins_of(key, bucket)
    counts = np.diff(np.append(begins, len(bucket)))
    run = np.repeat(np.arange(len(begins)), counts)
    # The busiest broker is last of its bucket; of equal ones the lowest id.
    order = np.lexsort((-broker, rate, run))
    ends = begins + counts - 1
    busiest = uses.take(order[ends])
    in_order = rate[order]
    lower, upper = begins + (counts - 1) // 2, begins + counts // 2
    columns = {name: busiest[name] for name in busiest.column_names} | _last(on_brokers, begins)
    columns |= {
        "minutes": np.add.reduceat(uses["minutes"].to_numpy(), begins),
        "throttled_minutes": np.add.reduceat(uses["throttled"].to_numpy(), begins),
        "coverage": busiest["minutes"].to_numpy() / busiest["expected"].to_numpy(),
        "median": (in_order[lower] + in_order[upper]) / 2,
        "cluster_total": np.add.reduceat(rate, begins),
        "brokers": counts.astype(np.int32),
        "days": _days(on_brokers, begins),
    }
    return pa.table({name.split()[0]: columns[name.split()[0]] for name in _DDL.split(",")})


def _under_last_limit(on_brokers: UseOnBrokers) -> UseOnBrokers:
    hours = on_brokers.hours
    begins = begins_of(on_brokers.key, hours["bucket_id"].to_numpy())
    counts = np.diff(np.append(begins, hours.num_rows))
    limits = hours["limit"].to_numpy()
    last = np.repeat(limits[_last_rows(hours, begins)], counts)
    is_same = (limits == last) | (np.isnan(limits) & np.isnan(last))
    return on_brokers if is_same.all() else UseOnBrokers.of(hours.filter(pa.array(is_same)))


def _last_rows(hours: pa.Table, begins: Numbers) -> Numbers:
    """Return the row of the last hour of each bucket, on the highest broker that has it."""
    time = hours["hour"].to_numpy() - hours["age"].to_numpy() * 24
    position = (time.astype(np.int64) << 32) + hours["broker_id"].to_numpy()
    counts = np.diff(np.append(begins, hours.num_rows))
    latest = np.repeat(np.maximum.reduceat(position, begins), counts)
    return np.flatnonzero(position == latest)


def _last(on_brokers: UseOnBrokers, buckets: Numbers) -> dict[str, Any]:
    """Return level and limit of the last hour of each bucket."""
    names = ["level", "limit"]
    rows = _last_rows(on_brokers.hours, on_brokers.begins[buckets])
    return dict(zip(names, on_brokers.hours.select(names).take(rows).columns, strict=True))


def _days(on_brokers: UseOnBrokers, buckets: Numbers) -> Numbers:
    """Count the days of each bucket on any broker."""
    hours = on_brokers.hours
    first = on_brokers.begins[buckets]
    run = np.cumsum(np.isin(np.arange(hours.num_rows), first)) - 1
    days = np.unique(np.stack([run, hours["age"].to_numpy().astype(np.int64)]), axis=1)
    return np.bincount(days[0], minlength=len(buckets)).astype(np.int32)


def rows_of(
    evidence: Evidence, advised: Sequence[tuple[str, RightSize]]
) -> Iterator[dict[str, Any]]:
    """Yield advice with its clusters as rows of ``RECOMMENDATION``, each with its back-test."""
    values = {
        (cluster, each.use.bucket_id): Values(each.use.limit, each.value)
        for cluster, each in advised
        if each.value is not None
    }
    tests = back_test(evidence, values)
    periods = {cluster: evidence.period(cluster) for cluster in evidence.newest}
    for cluster, each in advised:
        since, until = periods[cluster]
        row = {"cluster_id": cluster, **_row(each), "since": since, "until": until}
        if test := tests.get((cluster, each.use.bucket_id)):
            row["throttled_s_now"] = test.now
            row |= {f"throttled_s_{name}": value for name, value in test.new._asdict().items()}
        yield row


def _row(advice: RightSize) -> dict[str, Any]:
    use, body = advice.use, advice.body()
    same = ("key", "bucket_id", "level", "limit", "broker_id", "brokers", "p95", "peak")
    return {
        **{name: getattr(use, name) for name in (*same, "cluster_total", "skew", "days")},
        **quota_columns(use.entity),
        "bucket_user": use.user,
        "bucket_client": use.client_id,
        "coverage": use.coverage,
        "minutes": use.minutes,
        "throttled_minutes": use.throttled_minutes,
        "percentile": use.rate,
        "buckets": advice.buckets,
        "action": advice.action.value,
        "reason": advice.reason,
        "value": advice.value,
        "target": advice.target,
        "factor": advice.factor,
        "censored": advice.censored,
        "saving": advice.saving,
        "body": None if body is None else json.dumps(body, ensure_ascii=False),
    }
