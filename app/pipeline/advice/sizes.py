"""``recommendation``: what each bucket used on its busiest broker, and what follows from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.resolution_levels import Slot
from app.domain.right_sizes import (
    Action,
    Figures,
    SizingRules,
    own_entity_at,
    own_value_in_words,
    sentence,
    sizing_body,
)
from app.pipeline.advice.backtest import with_back_tests
from app.pipeline.advice.evidence import Evidence, tags_of
from app.pipeline.advice.judgement import (
    ACTIONS,
    CLIENT_SLOTS,
    REASONS,
    USER_SLOTS,
    Advice,
    advise,
    numbered,
)
from app.pipeline.advice.output import whole_table
from app.pipeline.advice.use import MOST_DAYS, UseOnBrokers
from app.pipeline.tables import RECOMMENDATION
from app.pipeline.usage.measures import Numbers, begins_of


def uses_of(evidence: Evidence, rules: SizingRules, halving_days: float | None) -> pa.Table:
    """Return what each bucket used that a stored value limits, with the bucket's tags."""
    weights, percent = evidence.weights(halving_days), rules.percentile

    def busiest_of(hours: pa.Table) -> pa.Table:
        uses = busiest_brokers(hours, percent, weights)
        return uses.filter((pc.field("level") > 0) & pc.field("limit").is_valid())

    return tags_of(evidence, evidence.map_buckets(busiest_of))


def busiest_brokers(hours: pa.Table, percent: int, weights: Sequence[int]) -> pa.Table:
    """Return what buckets used on their busiest brokers.

    Hours under another limit than that of the last do not count: who was throttled by it used less
    than it wanted, and has been measured again since.

    Args:
        hours: All of their hours, as ``Evidence.map_buckets`` hands them over.
        percent: Of the minutes that ``rate`` holds for.
        weights: Of minutes, by the age of a day.

    Returns:
        What ``UseOnBrokers.table`` returns of the busiest broker but for ``minutes`` and
        ``throttled_minutes``, which are of all, and ``level`` and ``limit``, which are of the
        bucket's last hour, on ``last_day`` (since the epoch); ``coverage``; ``median`` (of the
        brokers' rates) and ``cluster_total`` (their sum); ``brokers`` and ``days``, which count.
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
    same = ("cluster_id", "key", "bucket_id", "broker_id", "p95", "rate", "peak")
    columns = {name: busiest[name] for name in same} | _last(on_brokers, begins)
    columns |= {
        "minutes": np.add.reduceat(uses["minutes"].to_numpy(), begins),
        "throttled_minutes": np.add.reduceat(uses["throttled"].to_numpy(), begins),
        "coverage": busiest["minutes"].to_numpy() / busiest["expected"].to_numpy(),
        "median": (in_order[lower] + in_order[upper]) / 2,
        "cluster_total": np.add.reduceat(rate, begins),
        "brokers": counts.astype(np.int32),
        "days": _days(on_brokers, begins),
    }
    return pa.table(columns)


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
    """Return level, limit and day of the last hour of each bucket."""
    hours = on_brokers.hours.take(_last_rows(on_brokers.hours, on_brokers.begins[buckets]))
    last = hours["dt"].cast(pa.int32())
    return {"level": hours["level"], "limit": hours["limit"], "last_day": last}


def _days(on_brokers: UseOnBrokers, buckets: Numbers) -> Numbers:
    """Count the days of each bucket on any broker."""
    hours = on_brokers.hours
    first = on_brokers.begins[buckets]
    run = np.cumsum(np.isin(np.arange(hours.num_rows), first)) - 1
    days = np.unique(run * MOST_DAYS + hours["age"].to_numpy().astype(np.int64))
    return np.bincount(days // MOST_DAYS, minlength=len(buckets)).astype(np.int32)


_OF_USE: Final = (
    *("key", "bucket_id", "level", "limit", "broker_id", "brokers", "p95", "peak"),
    *("cluster_total", "days", "coverage", "minutes", "throttled_minutes"),
)


def advice_of(evidence: Evidence, uses: pa.Table, rules: SizingRules) -> pa.Table:
    """Return ``RECOMMENDATION`` of all clusters, with back-tests.

    Args:
        evidence: Has hours of buckets.
        uses: As ``uses_of`` returns them.
        rules: How advice is given.
    """
    clusters = uses["cluster_id"].to_numpy(zero_copy_only=False)
    tables = []
    for cluster in sorted(set(clusters.tolist())):
        own = uses.filter(pa.array(clusters == cluster)).combine_chunks()
        since, until = evidence.period(cluster)
        columns = recommended(own, rules)
        columns |= {"cluster_id": [cluster], "since": [since], "until": [until]}
        tables.append(whole_table(RECOMMENDATION, columns))
    table = pa.concat_tables(tables) if tables else whole_table(RECOMMENDATION, {})
    return with_back_tests(table, evidence)


def recommended(uses: pa.Table, rules: SizingRules) -> dict[str, Any]:
    """Return the columns of ``RECOMMENDATION`` of one cluster but for its period and back-tests."""
    (user, client), _ = numbered(uses["bucket_user"], uses["bucket_client"])
    (key,), keys = numbered(uses["key"])
    use: dict[str, Numbers] = {
        name: uses[name].to_numpy()
        for name in uses.column_names
        if name not in {"cluster_id", "key", "bucket_user", "bucket_client"}
    }
    advice = advise({**use, "key": key, "user": user, "client": client}, keys, rules)
    chosen = uses.take(pa.array(advice.row))
    limit, rate, median = (chosen[name].to_numpy() for name in ("limit", "rate", "median"))
    factor = np.maximum(advice.value / limit, limit / advice.value)
    with np.errstate(over="ignore"):
        skew = np.divide(rate, median, out=np.full(len(rate), np.nan), where=median > 0)
    text = _Text(chosen, advice, rules)
    reasons = text.reasons()
    return {
        **{name: chosen[name] for name in (*_OF_USE, "bucket_user", "bucket_client")},
        **text.entities(),
        "percentile": chosen["rate"],
        "buckets": advice.buckets,
        "action": pa.array(ACTIONS).take(pa.array(advice.action)),
        "reason": reasons,
        "value": pa.array(advice.value, from_pandas=True),
        "target": advice.target,
        "factor": pa.array(factor, from_pandas=True),
        "skew": pa.array(skew, from_pandas=True),
        "censored": chosen["throttled_minutes"].to_numpy() > 0,
        "saving": advice.saving,
        "body": text.bodies(reasons),
    }


@dataclass(frozen=True, slots=True)
class _Text:
    """Names, sentences and bodies of what is advised.

    Attributes:
        chosen: The rows of ``uses_of`` that the advice is about.
        advice: In the order of these rows.
        rules: How advice is given.
    """

    chosen: pa.Table
    advice: Advice
    rules: SizingRules

    def entities(self) -> Mapping[str, Any]:
        """Return the columns that name the entities that limit now, as ``quota_columns`` does."""
        level, columns = self.chosen["level"].to_numpy(), {}
        for column, flag, tag, slots in (
            ("quota_user", "quota_user_default", "bucket_user", USER_SLOTS),
            ("quota_client_id", "quota_client_default", "bucket_client", CLIENT_SLOTS),
        ):
            is_named = pa.array(slots[level] == Slot.NAMED)
            columns[column] = pc.if_else(is_named, self.chosen[tag], "")
            columns[flag] = pa.array(slots[level] == Slot.DEFAULT)
        return columns

    def reasons(self) -> list[str]:
        """Return the sentences."""
        advice, chosen = self.advice, self.chosen
        judged = {name: getattr(advice, name).tolist() for name in ("days", "coverage", "target")}
        columns = [
            judged[name] if name in judged else chosen[name].to_pylist() for name in Figures._fields
        ]
        found = [
            sentence(REASONS[why], Figures(*row), self.rules)
            for why, *row in zip(advice.why.tolist(), *columns, strict=True)
        ]
        for row in np.flatnonzero(self.advice.is_default).tolist():
            limiting, own = self._entities(row)
            is_hiding = bool(self.advice.is_hiding[row])
            no_own = bool(self.advice.no_own[row])
            words = own_value_in_words(limiting, None if no_own else own, is_hiding=is_hiding)
            found[row] = f"{found[row]} {words}"
        return found

    def bodies(self, reasons: Sequence[str]) -> list[str | None]:
        """Return what ``POST /quotas/alterations`` takes, as JSON; null without a change."""
        found: list[str | None] = [None] * len(reasons)
        for row in np.flatnonzero(~np.isnan(self.advice.value)).tolist():
            limiting, own = self._entities(row)
            has_own = bool(self.advice.has_own[row])
            because = (Action(ACTIONS[self.advice.action[row]]), reasons[row])
            body = sizing_body(
                own if has_own else limiting,
                self.chosen["key"][row].as_py(),
                float(self.advice.value[row]),
                None if has_own else self.chosen["limit"][row].as_py(),
                because,
            )
            found[row] = json.dumps(body, ensure_ascii=False)
        return found

    def _entities(self, row: int) -> tuple[ClientQuotaEntity, ClientQuotaEntity]:
        """Return the entity that limits the bucket of a row, and that of the bucket alone."""
        level = self.chosen["level"][row].as_py()
        user, client = (self.chosen[name][row].as_py() for name in ("bucket_user", "bucket_client"))
        limiting = entity_at(level, user, client)
        return limiting or ClientQuotaEntity.of({}), own_entity_at(level, user, client)
