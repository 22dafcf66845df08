"""``recommendation``: what each bucket used on its busiest broker, and what follows from it.

Of values to change, for how long they would have throttled buckets in the same hours. Minutes are
those of ``bucket_hour``: their maxima by bin, and averages in proportion to them, so that they add
up to the hour's. The model is that of ``whatif``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.right_sizes import (
    Action,
    Figures,
    SizingRules,
    own_entity_at,
    own_value_in_words,
    sentence,
    sizing_body,
)
from app.domain.throttling import TOKEN_KEY
from app.pipeline.advice.evidence import Evidence, tags_of
from app.pipeline.advice.judgement import ACTIONS, REASONS, advise, numbered
from app.pipeline.advice.output import rows_to_table, whole_table
from app.pipeline.advice.use import (
    MOST_DAYS,
    begins_on_brokers,
    grouped,
    in_order,
    minutes_of_hours,
    uses_on_brokers,
)
from app.pipeline.resolve.series import name_entities
from app.pipeline.tables import RECOMMENDATION
from app.pipeline.usage.measures import Numbers, begins_of, hours_of_epoch
from app.pipeline.whatif.model import MICRO, Minutes, replay

_WEIGHT: Final = 1_024
"""Of the newest day: weights are whole numbers, so that sums do not depend on their order."""


def uses_of(evidence: Evidence, rules: SizingRules, halving_days: float | None) -> pa.Table:
    """Return what each bucket used that a stored value limits, with the bucket's tags."""
    percent, weights = rules.percentile, [1] * MOST_DAYS
    if halving_days is not None:
        shares = (2 ** (-age / halving_days) for age in range(MOST_DAYS))
        weights = [max(1, round(_WEIGHT * share)) for share in shares]

    def busiest_of(hours: pa.Table) -> pa.Table:
        uses = busiest_brokers(hours, percent, weights)
        return uses.filter((pc.field("level") > 0) & pc.field("limit").is_valid())

    return tags_of(evidence, evidence.map_buckets(busiest_of))


def busiest_brokers(hours: pa.Table, percent: int, weights: Sequence[int]) -> pa.Table:
    """Return what buckets used on their busiest brokers.

    Hours under another limit than that of the last do not count: who was throttled by it used less
    than it wanted, and has been measured again since.

    Args:
        hours: All of their hours, as of ``uses_on_brokers``, like ``percent`` and ``weights``.

    Returns:
        What ``uses_on_brokers`` returns of the busiest broker but for ``minutes`` and
        ``throttled_minutes``, which are of all, and ``level`` and ``limit``, which are of the
        bucket's last hour, on ``last_day``; ``coverage``; ``median`` (of the brokers' rates) and
        ``cluster_total`` (their sum); ``brokers`` and ``days``, which count.
    """
    hours = _under_last_limit(in_order(hours))
    uses = uses_on_brokers(hours, percent, weights)
    rate, broker, bucket = (uses[name].to_numpy() for name in ("rate", "broker_id", "bucket_id"))
    begins = begins_of(bucket)
    counts = np.diff(begins, append=len(bucket))
    # The busiest broker is last of its bucket; of equal ones the lowest id.
    order = np.lexsort((-broker, rate, bucket))
    busiest, in_rank = uses.take(order[begins + counts - 1]), rate[order]
    lower, upper = begins + (counts - 1) // 2, begins + counts // 2
    last = hours.take(_last_rows(hours))
    days = grouped(hours, ["bucket_id"], {"age": "count_distinct"})
    same = ("cluster_id", "key", "bucket_id", "broker_id", "p95", "rate", "peak")
    return pa.table(
        {
            **{name: busiest[name] for name in same},
            **{name: last[name] for name in ("level", "limit")},
            "last_day": last["dt"],
            "minutes": np.add.reduceat(uses["minutes"].to_numpy(), begins),
            "throttled_minutes": np.add.reduceat(uses["throttled"].to_numpy(), begins),
            "coverage": busiest["minutes"].to_numpy() / busiest["expected"].to_numpy(),
            "median": (in_rank[lower] + in_rank[upper]) / 2,
            "cluster_total": np.add.reduceat(rate, begins),
            "brokers": counts.astype(np.int32),
            "days": days.sort_by("bucket_id")["age"],
        }
    )


def _under_last_limit(hours: pa.Table) -> pa.Table:
    limits = hours["limit"].to_numpy()
    last = np.repeat(limits[_last_rows(hours)], np.diff(_begins(hours), append=len(limits)))
    return hours.filter(pa.array((limits == last) | (np.isnan(limits) & np.isnan(last))))


def _begins(hours: pa.Table) -> Numbers:
    return begins_of(hours["bucket_id"].to_numpy())


def _last_rows(hours: pa.Table) -> Numbers:
    """Return the row of the last hour of each bucket, on the highest broker that has it."""
    position = (hours_of_epoch(hours) << 32) + hours["broker_id"].to_numpy()
    begins = _begins(hours)
    latest = np.maximum.reduceat(position, begins)
    return np.flatnonzero(position == np.repeat(latest, np.diff(begins, append=len(position))))


def advice_of(evidence: Evidence, uses: pa.Table, rules: SizingRules) -> pa.Table:
    """Return ``RECOMMENDATION`` of all clusters, with back-tests, from what ``uses_of`` returns."""
    tables = [rows_to_table(RECOMMENDATION, [])]
    for cluster in sorted(uses["cluster_id"].unique().to_pylist()):
        own = uses.filter(pc.field("cluster_id") == cluster).combine_chunks()
        since, until = evidence.period(cluster)
        of_all = {"cluster_id": cluster, "since": since, "until": until}
        tables.append(whole_table(RECOMMENDATION, recommended(own, rules), **of_all))
    return with_back_tests(pa.concat_tables(tables), evidence)


def recommended(uses: pa.Table, rules: SizingRules) -> pa.Table:
    """Return the columns of ``RECOMMENDATION`` of one cluster but for its period and back-tests."""
    (user, client), _ = numbered(uses["bucket_user"], uses["bucket_client"])
    (key,), keys = numbered(uses["key"])
    texts = {"cluster_id", "key", "bucket_user", "bucket_client"}
    use = {name: uses[name].to_numpy() for name in uses.column_names if name not in texts}
    advice = advise({**use, "key": key, "user": user, "client": client}, keys, rules)
    chosen = name_entities(uses.take(advice["row"]))
    limit, rate, median = (chosen[name].to_numpy() for name in ("limit", "rate", "median"))
    value = advice["value"]
    with np.errstate(over="ignore"):
        skew = np.divide(rate, median, out=np.full(len(rate), np.nan), where=median > 0)
    reasons, bodies = _texts(chosen, advice, rules)
    columns = {
        **{name: chosen[name] for name in chosen.column_names if name in RECOMMENDATION.columns},
        **{name: advice[name] for name in ("buckets", "target", "saving")},
        "percentile": chosen["rate"],
        "action": pa.array(ACTIONS).take(pa.array(advice["action"])),
        "reason": reasons,
        "value": pa.array(value, from_pandas=True),
        "factor": pa.array(np.maximum(value / limit, limit / value), from_pandas=True),
        "skew": pa.array(skew, from_pandas=True),
        "censored": chosen["throttled_minutes"].to_numpy() > 0,
        "body": bodies,
    }
    return pa.table(columns)


def _texts(
    chosen: pa.Table, advice: Mapping[str, Numbers], rules: SizingRules
) -> tuple[list[str], list[str | None]]:
    """Return the sentences, and what ``POST /quotas/alterations`` takes; null without a change."""
    columns = [
        advice[name].tolist() if name in advice else chosen[name].to_pylist()
        for name in Figures._fields
    ]
    reasons = [
        sentence(REASONS[why], Figures(*row), rules)
        for why, *row in zip(advice["why"].tolist(), *columns, strict=True)
    ]
    bodies: list[str | None] = [None] * len(reasons)
    has_own, no_own, is_hiding = (advice[name] for name in ("has_own", "no_own", "is_hiding"))
    is_default, is_change = has_own | no_own | is_hiding, ~np.isnan(advice["value"])
    names = ("level", "bucket_user", "bucket_client", "key", "limit")
    for row in np.flatnonzero(is_default | is_change).tolist():
        *bucket, key, limit = (chosen[name][row].as_py() for name in names)
        limiting = entity_at(*bucket) or ClientQuotaEntity.of({})
        own = own_entity_at(*bucket)
        if is_default[row]:
            its_own = None if no_own[row] else own
            words = own_value_in_words(limiting, its_own, is_hiding=bool(is_hiding[row]))
            reasons[row] = f"{reasons[row]} {words}"
        if is_change[row]:
            entity, before = (own, None) if has_own[row] else (limiting, limit)
            because = (Action(ACTIONS[advice["action"][row]]), reasons[row])
            body = sizing_body(entity, key, float(advice["value"][row]), before, because)
            bodies[row] = json.dumps(body, ensure_ascii=False)
    return reasons, bodies


def with_back_tests(advice: pa.Table, evidence: Evidence) -> pa.Table:
    """Fill in for how long values would have throttled buckets, in seconds on all brokers.

    Of what is to change, ``throttled_s_now`` is under the limit, most likely, and
    ``throttled_s_low``, ``…_mid``, ``…_high`` under the value.
    """
    changes = advice.filter(pc.field("value").is_valid()).combine_chunks()

    def test_buckets(hours: pa.Table) -> pa.Table:
        at = pc.index_in(hours["bucket_id"], changes["bucket_id"])
        for name, limit in (("value_now", "limit"), ("value_new", "value")):
            hours = hours.append_column(name, changes[limit].take(at))
        return back_tests_of(hours)

    tested = evidence.bucket_hours.of_buckets(changes["bucket_id"]).map_buckets(test_buckets)
    row = pc.index_in(advice["bucket_id"], tested["bucket_id"])
    for name in ("now", "low", "mid", "high"):
        index = advice.schema.get_field_index(f"throttled_s_{name}")
        seconds = pa.array(tested[name].to_numpy() / MICRO)
        advice = advice.set_column(index, advice.field(index), seconds.take(row))
    return advice


def back_tests_of(hours: pa.Table) -> pa.Table:
    """Return for how long values would have throttled buckets, in 10^-6 s.

    ``now`` is under ``value_now`` of their hours, ``low``, ``mid`` and ``high`` are under
    ``value_new``.
    """
    hours = in_order(hours)
    rows = begins_on_brokers(hours)
    minutes = _minutes_of(hours, rows)
    has_tokens = pc.equal(hours["key"], TOKEN_KEY.value).to_numpy()[rows]
    figures = []
    for name in ("value_now", "value_new"):
        replayed = replay(minutes, hours[name].to_numpy()[rows], has_tokens)
        figures.append(np.add.reduceat(replayed.throttled + replayed.idle, minutes.begins, axis=1))
    bucket = hours["bucket_id"].to_numpy()[rows]
    buckets = begins_of(bucket)
    found = np.add.reduceat(np.stack([figures[0][1], *figures[1]]), buckets, axis=1)
    return pa.table([bucket[buckets], *found], ["bucket_id", "now", "low", "mid", "high"])


def _minutes_of(hours: pa.Table, rows: Numbers) -> Minutes:
    """Return the minutes of series, which begin at rows of hours in order."""
    row, minute, rates = minutes_of_hours(hours)
    maximum = np.minimum(rates, hours["rate_max"].to_numpy()[row])
    begins = begins_of(row)
    sums = np.add.reduceat(maximum, begins)
    total = hours["rate_avg"].to_numpy() * hours["minutes"].to_numpy()
    scale = np.divide(total, sums, out=np.zeros(len(sums)), where=sums > 0)
    average = np.minimum(maximum * scale[row], maximum)
    at = hours_of_epoch(hours)[row] * 60 + minute
    return Minutes(begins[rows], at, average, maximum)
