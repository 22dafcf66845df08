"""``stale_quota`` and ``uncovered_client``: who was seen beside what is stored."""

import csv
import io
import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf

from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.resolution_levels import PRECEDENCE, Slot
from app.domain.right_sizes import SizingRules, allowed_value, alteration_body
from app.domain.stale_quotas import ANONYMOUS, StaleValue, Stored, stale_value
from app.pipeline.advice.evidence import Evidence, quota_columns, tags_of
from app.pipeline.advice.judgement import numbered
from app.pipeline.advice.unused import (
    CAUSES,
    NEVER,
    Judgement,
    Names,
    SeenColumns,
    StoredColumns,
    Winner,
    find_unused,
)
from app.pipeline.errors import UsageError
from app.pipeline.lake import days_of, read_first
from app.pipeline.options import read_file
from app.pipeline.quota_history import AUDIT
from app.pipeline.tables import SERIES, SERIES_LIMIT, UTILIZATION_DAILY
from app.pipeline.usage.measures import Numbers
from app.pipeline.whatif.model import MICRO

_LONG_ENOUGH: Final = 0.9
"""So many of the days must have data."""

_PAIR: Final = "pair"
_UNCOVERED: Final = (0, 5, 6, 8)
"""Levels of no value, and of values for everybody."""


def stale_rows(
    evidence: Evidence,
    versions: pa.Table,
    days: int,
    inventory: Collection[str] | None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of ``STALE_QUOTA``, by cluster.

    Args:
        evidence: Has who was seen.
        versions: ``quota_version``, those that have no end.
        days: Without traffic make a value unused.
        inventory: The users that there are; null where nobody says.
    """
    seen = _seen(evidence)
    for cluster in sorted(evidence.newest):
        since, until = evidence.period(cluster)
        with_data = evidence.days[cluster]
        of_cluster = pc.field("cluster_id") == cluster
        own = versions.filter(of_cluster & pc.field("value").is_valid())
        is_recent = (own["origin"].to_numpy(zero_copy_only=False) == AUDIT) & (
            own["valid_from"].cast(pa.int64()).to_numpy() > since.timestamp() * MICRO
        )
        found = ClusterColumns(own, seen.filter(of_cluster), inventory)
        is_long = with_data >= _LONG_ENOUGH * days
        period = {"days": with_data, "since": since, "until": until}
        for stale in found.stale_values(days, is_long=is_long, is_recent=is_recent):
            yield {"cluster_id": cluster, **_row(stale), **period}


class ClusterColumns:
    """The values of one cluster, and who was seen there, as columns of numbers."""

    def __init__(
        self, versions: pa.Table, seen: pa.Table, inventory: Collection[str] | None
    ) -> None:
        users, self._users = numbered(versions["user"], seen["user"])
        clients, self._clients = numbered(versions["client_id"], seen["client_id"])
        keys, self._keys = numbered(versions["key"], seen["key"])
        self._names = Names(len(self._keys), len(self._users), len(self._clients))
        slots = np.array([Slot.ABSENT, Slot.NAMED, Slot.DEFAULT], object)
        user, client = (
            slots[np.where(versions[flag].to_numpy(zero_copy_only=False), 2, number != 0)]
            for flag, number in (("user_default", users[0]), ("client_default", clients[0]))
        )
        level = np.zeros(versions.num_rows, np.int64)
        for row in PRECEDENCE:
            level[(user == row.user) & (client == row.client_id)] = row.level
        # Others are of addresses.
        chosen = np.flatnonzero(level)
        self._stored = StoredColumns(
            keys[0][chosen],
            level[chosen],
            np.where(user == Slot.NAMED, users[0], 0)[chosen],
            np.where(client == Slot.NAMED, clients[0], 0)[chosen],
            versions["value"].to_numpy()[chosen],
        )
        self._chosen = chosen
        is_pair = seen["is_pair"].to_numpy(zero_copy_only=False)
        last = seen["last"].cast(pa.int64()).to_numpy()
        levels = seen["level"].to_numpy()
        self._seen = SeenColumns(keys[1], users[1], clients[1], is_pair, levels, last)
        self._inventory = inventory

    def stale_values(self, days: int, *, is_long: bool, is_recent: Numbers) -> Iterator[StaleValue]:
        """Yield each value that does nothing.

        Args:
            days: Without traffic make a value unused.
            is_long: Whether the data are of so many.
            is_recent: Of each version, whether it is younger than the data.
        """
        judgement = Judgement(is_long, self._is_absent(), is_recent[self._chosen])
        found = find_unused(self._stored, self._seen, self._names, judgement)
        for row, number, last in zip(
            found.row.tolist(), found.cause.tolist(), found.last.tolist(), strict=True
        ):
            stored = self._stored
            at = Winner(int(stored.level[row]), int(stored.user[row]), int(stored.client[row]))
            value = Stored(
                self._entity(at), self._keys[stored.key[row]], float(stored.value[row]), at.level
            )
            others = [self._entity(each) for each in found.others.get(row, ())]
            seen_at = None if last == NEVER else _EPOCH + timedelta(microseconds=last)
            yield stale_value(CAUSES[number], value, days, others, seen_at)

    def _is_absent(self) -> Numbers:
        """Tell of each value whether the inventory lacks its user."""
        if self._inventory is None:
            return np.zeros(len(self._stored.user), bool)
        there = {"", ANONYMOUS, *self._inventory}
        return np.array([name not in there for name in self._users])[self._stored.user]

    def _entity(self, of: Winner) -> ClientQuotaEntity:
        names = self._users[of.user], self._clients[of.client]
        return entity_at(of.level, *names) or ClientQuotaEntity.of({})


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


def _seen(evidence: Evidence) -> pa.Table:
    """Return who was seen with which key, at which level, and when last at any."""
    same = ["cluster_id", "series_id"]
    times = evidence.read(SERIES).selectExpr(*same, "last_seen", "0 as levels")
    limits = evidence.read(SERIES_LIMIT)
    limited = limits.selectExpr(*same, "null as last_seen", "shiftleft(1, level) as levels")
    # Numbers alone, which are summed up several times faster than names.
    found = times.unionByName(limited).groupBy(*same)
    of_series = found.agg(
        sf.max("last_seen").alias("last_seen"), sf.bit_or("levels").alias("levels")
    )
    names = evidence.read(SERIES).join(sf.broadcast(of_series), [*same, "last_seen"])
    columns = names.select(
        *("cluster_id", "key", "user", "client_id"),
        (sf.col("grain") == _PAIR).alias("is_pair"),
        *("levels", sf.col("last_seen").alias("last")),
    ).toArrow()
    levels: Numbers = columns["levels"].to_numpy()
    row, level = np.nonzero(levels[:, None] >> np.arange(len(PRECEDENCE) + 1) & 1)
    return columns.take(pa.array(row)).append_column("level", pa.array(level))


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
            "body": _json(body) if own.entries else None,
        }


def _largest(evidence: Evidence, top: int) -> pa.Table:
    """Return those without a value of their own that used most of each key.

    Whole numbers add up the same in any order.
    """
    days = read_first(evidence.lakes, UTILIZATION_DAILY, days_of(evidence.hours))
    units = "cast(round(coalesce(bytes, p50 * minutes_present * 1000)) as decimal(38, 0))"
    on_brokers = days.where("broker_id is not null").withColumn("units", sf.expr(units))
    of_bucket = ["cluster_id", "key", "bucket_id"]
    # The level of the last day, on the highest broker; a struct would be sorted by.
    last = "(unix_date(dt) * 4294967296L + broker_id) * 16 + level"
    sums = on_brokers.groupBy(*of_bucket).agg(
        sf.sum("units").alias("units"), sf.max(sf.expr(last)).alias("last")
    )
    totals = sums.groupBy("cluster_id", "key").agg(sf.sum("units").alias("total"))
    ranked = (
        sums.join(sf.broadcast(totals), ["cluster_id", "key"])
        .where((sf.col("last") % 16).isin(list(_UNCOVERED)) & (sf.col("units") > 0))
        .selectExpr(
            *of_bucket,
            "cast(units as double) / cast(total as double) as share",
            "row_number() over (partition by cluster_id, key order by units desc, bucket_id) as n",
        )
    )
    largest = sf.broadcast(ranked.where(sf.col("n") <= top).drop("n"))
    return (
        on_brokers.join(largest, of_bucket)
        .groupBy(*of_bucket, "share")
        .agg(
            sf.sum("bytes").alias("bytes"),
            sf.sum("minutes_present").alias("minutes"),
            sf.max("peak").alias("peak"),
            sf.max_by(sf.struct("broker_id", "p99"), sf.struct("p99", "broker_id")).alias("top"),
            sf.max_by(sf.struct("level", "limit"), sf.struct("dt", "broker_id")).alias("last"),
            sf.count_distinct("dt").cast("int").alias("days"),
        )
        .select(
            *(*of_bucket, "bytes", "minutes", "days", "peak", "share"),
            *("top.broker_id", "top.p99", "last.level", "last.limit"),
        )
        .toArrow()
    )
