"""``stale_quota`` and ``uncovered_client``: who was seen beside what is stored."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.right_sizes import SizingRules, allowed_value, alteration_body
from app.domain.stale_quotas import Seen, StaleRules, StaleValue, stale_values
from app.pipeline.advice.evidence import Evidence, quota_columns, tags_of
from app.pipeline.errors import UsageError
from app.pipeline.lake import days_of, read_first
from app.pipeline.options import read_file
from app.pipeline.quota_history import AUDIT, entity_of_columns
from app.pipeline.tables import SERIES, SERIES_LIMIT, UTILIZATION_DAILY

_LONG_ENOUGH: Final = 0.9
"""So many of the days must have data."""

_PAIR: Final = "pair"
_UNCOVERED: Final = (0, 5, 6, 8)
"""Levels of no value, and of values for everybody."""

Stored = dict[str, dict[ClientQuotaEntity, dict[str, float]]]


def stored_quotas(versions: Sequence[Mapping[str, Any]]) -> Stored:
    """Return by cluster what is stored now.

    Args:
        versions: Rows of ``quota_version`` that have no end.
    """
    found: Stored = defaultdict(lambda: defaultdict(dict))
    for row in versions:
        if row["value"] is not None:
            found[row["cluster_id"]][entity_of_columns(row)][row["key"]] = row["value"]
    return found


def stale_rows(
    evidence: Evidence,
    versions: Sequence[Mapping[str, Any]],
    days: int,
    inventory: Collection[str] | None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of ``STALE_QUOTA``, by cluster."""
    seen = _seen(evidence)
    stored = stored_quotas(versions)
    for cluster in sorted(evidence.newest):
        since, until = evidence.period(cluster)
        with_data = evidence.days[cluster]
        recent = {
            (entity_of_columns(row), row["key"])
            for row in versions
            if row["cluster_id"] == cluster and row["origin"] == AUDIT and row["valid_from"] > since
        }
        is_long = with_data >= _LONG_ENOUGH * days
        rules = StaleRules(days, is_long, inventory, recent)
        quotas: Mapping[ClientQuotaEntity, Values] = stored.get(cluster, {})
        period = {"days": with_data, "since": since, "until": until}
        for stale in stale_values(quotas, seen.get(cluster, ()), rules):
            yield {"cluster_id": cluster, **_row(stale), **period}


def _row(stale: StaleValue) -> dict[str, Any]:
    return {
        "kind": stale.kind.value,
        "key": stale.key,
        **quota_columns(stale.entity),
        "level": stale.level,
        "value": stale.value,
        "reason": stale.reason,
        "winners": _json([winner.as_dict() for winner in stale.winners]),
        "last_seen": stale.last_seen,
        "body": _json(stale.body()),
    }


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)


def _seen(evidence: Evidence) -> dict[str, list[Seen]]:
    """Return by cluster who was seen with which key, and at which level."""
    series, limits = evidence.read(SERIES), evidence.read(SERIES_LIMIT)
    limited = limits.select(*SERIES.partitions, "series_id", "level").distinct()
    both = series.join(limited, [*SERIES.partitions, "series_id"])
    is_pair = (sf.col("grain") == _PAIR).alias("is_pair")
    names = ("cluster_id", "key", "user", "client_id")
    found = both.groupBy(*names, is_pair, "level").agg(sf.max("last_seen").alias("last"))
    rows: dict[str, list[Seen]] = defaultdict(list)
    for row in found.toArrow().to_pylist():
        rows[row.pop("cluster_id")].append(Seen(**row))
    return rows


def read_inventory(file: str) -> frozenset[str]:
    """Read the users that there are.

    A list of names or of objects with ``user`` in JSON, as ``GET /users/scram-credentials`` answers
    it; CSV with a column ``user``; or a name on each line. ``User:`` before a name is left out.

    Raises:
        UsageError: It is none of these.
    """
    text = read_file("--inventory", file)
    try:
        names = _names_of_json(text) if text.lstrip()[:1] in {"[", "{"} else _names_of_lines(text)
    except (ValueError, KeyError, TypeError) as error:
        message = (
            "The file of --inventory is no list of users: write names in JSON, a column `user` in "
            "CSV, or a name on each line."
        )
        raise UsageError(message) from error
    return frozenset(name.removeprefix("User:") for name in names if name)


def _names_of_json(text: str) -> list[str]:
    document = json.loads(text)
    items = document["users"] if isinstance(document, dict) else document
    names = [item["user"] if isinstance(item, dict) else item for item in items]
    if not all(isinstance(name, str) for name in names):
        raise TypeError
    return names


def _names_of_lines(text: str) -> list[str]:
    heading, _, _ = text.partition("\n")
    columns = [cell.strip() for cell in heading.split(",")]
    if "user" in columns:
        return [row["user"] or "" for row in csv.DictReader(io.StringIO(text))]
    return [line.strip() for line in text.splitlines()]


def uncovered_rows(evidence: Evidence, top: int, rules: SizingRules) -> Iterator[dict[str, Any]]:
    """Yield rows of ``UNCOVERED_CLIENT``: of each cluster and key those that used most.

    Args:
        evidence: Has days of buckets.
        top: How many of each key.
        rules: Of the value that is advised.
    """
    named = _largest(_uses(evidence), top).join(tags_of(evidence), ["cluster_id", "bucket_id"])
    for row in named.sort("cluster_id", "key", "bucket_id").toArrow().to_pylist():
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
            "body": _json(body) if own.entries else None,
        }


def _uses(evidence: Evidence) -> DataFrame:
    """Return what each bucket used; whole numbers add up the same in any order."""
    days = read_first(evidence.lakes, UTILIZATION_DAILY, days_of(evidence.hours))
    units = "cast(round(coalesce(bytes, p50 * minutes_present * 1000)) as decimal(38, 0))"
    on_brokers = days.where("broker_id is not null").withColumn("units", sf.expr(units))
    return on_brokers.groupBy("cluster_id", "key", "bucket_id").agg(
        sf.sum("units").alias("units"),
        sf.sum("bytes").alias("bytes"),
        sf.sum("minutes_present").alias("minutes"),
        sf.max("peak").alias("peak"),
        sf.max_by(sf.struct("broker_id", "p99"), sf.struct("p99", "broker_id")).alias("busiest"),
        sf.max_by(sf.struct("level", "limit"), sf.struct("dt", "broker_id")).alias("last"),
        sf.count_distinct("dt").cast("int").alias("days"),
    )


def _largest(uses: DataFrame, top: int) -> DataFrame:
    """Return those without a value of their own that used most of each key."""
    totals = uses.groupBy("cluster_id", "key").agg(sf.sum("units").alias("total"))
    ranked = (
        uses.join(sf.broadcast(totals), ["cluster_id", "key"])
        .where(sf.col("last.level").isin(list(_UNCOVERED)) & (sf.col("units") > 0))
        .selectExpr(
            *("cluster_id", "key", "bucket_id", "bytes", "minutes", "days", "peak"),
            "cast(units as double) / cast(total as double) as share",
            *("busiest.broker_id", "busiest.p99", "last.level", "last.limit"),
            "row_number() over (partition by cluster_id, key order by units desc, bucket_id) as n",
        )
    )
    return ranked.where(sf.col("n") <= top).drop("n")
