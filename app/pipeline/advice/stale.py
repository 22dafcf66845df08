"""``stale_quota`` and ``uncovered_client``: who was seen beside what is stored."""

import csv
import io
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
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
from app.pipeline.usage.measures import Numbers, begins_of, ranks_of, whole_numbers
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


_json: Final = json.JSONEncoder(ensure_ascii=False).encode


def _seen(evidence: Evidence) -> pa.Table:
    """Return who was seen with which key, at which level, and when last at any."""
    names = evidence.columns(SERIES, _OF_SERIES)
    limits = evidence.columns(SERIES_LIMIT, ["series_id", "level"])
    if names is None or limits is None:
        columns = _seen_by_spark(evidence)
    else:
        columns = _last_seen(names, limits)
    is_pair = pc.equal(columns["grain"], _PAIR)
    levels: Numbers = columns["levels"].to_numpy()
    row, level = np.nonzero(levels[:, None] >> np.arange(len(PRECEDENCE) + 1) & 1)
    chosen = columns.select(["cluster_id", "key", "user", "client_id"])
    found = chosen.append_column("is_pair", is_pair).append_column("last", columns["last_seen"])
    return found.take(pa.array(row)).append_column("level", pa.array(level))


_OF_SERIES: Final = ("cluster_id", "series_id", "key", "user", "client_id", "grain", "last_seen")


def _last_seen(names: pa.Table, limits: pa.Table) -> pa.Table:
    """Return each series as it was seen last, with bits of the levels that ever limited it.

    Ids are numbers: names are looked at for one hour of each. No two clusters have one in common.
    """
    ids = names["series_id"].to_numpy()
    order = np.lexsort((names["last_seen"].cast(pa.int64()).to_numpy(), ids))
    ends = np.append(begins_of(ids[order])[1:], len(ids)) - 1 if len(ids) else order
    limited = limits["series_id"].to_numpy()
    by_id = np.argsort(limited)
    begins = begins_of(limited[by_id])
    bits = np.bitwise_or.reduceat(1 << limits["level"].to_numpy()[by_id].astype(np.int64), begins)
    last = names.take(pa.array(order[ends]))
    at = np.searchsorted(limited[by_id][begins], last["series_id"].to_numpy())
    has_limit = np.isin(last["series_id"].to_numpy(), limited)
    levels = np.zeros(last.num_rows, np.int64)
    levels[has_limit] = bits[at[has_limit]]
    return last.append_column("levels", pa.array(levels))


def _seen_by_spark(evidence: Evidence) -> pa.Table:
    """Return the same, where it takes tasks."""
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
    return names.select(*_OF_SERIES, "levels").toArrow()


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
    periods = {cluster: evidence.period(cluster) for cluster in evidence.newest}
    for row in tags_of(evidence, _largest(evidence, top)).to_pylist():
        since, until = periods[row["cluster_id"]]
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
    """Return those without a value of their own that used most of each key."""
    here = evidence.columns(UTILIZATION_DAILY, _OF_DAY)
    if here is None:
        rows = read_first(evidence.lakes, UTILIZATION_DAILY, days_of(evidence.hours))
        days = rows.where("broker_id is not null").select(*_OF_DAY)
        sums = _sums_by_spark(days)
    else:
        days = here.filter(pc.field("broker_id").is_valid())
        sums = _sums_of(days)
    ranked = _ranked(sums, top)
    if here is None:
        session, ids = evidence.lakes[0].session, ranked.select(["bucket_id"])
        wanted = session.createDataFrame(ids if ids.num_rows else [], "bucket_id bigint")
        rows = days.join(sf.broadcast(wanted), "bucket_id").select(*_OF_DAY).toArrow()
    else:
        rows = days.filter(pc.field("bucket_id").isin(ranked["bucket_id"]))
    return _described(rows, ranked)


_OF_DAY: Final = (
    *("cluster_id", "dt", "broker_id", "key", "bucket_id", "level", "limit", "minutes_present"),
    *("bytes", "p50", "p99", "peak"),
)
_OF_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_LAST: Final = "(unix_date(dt) * 4294967296L + broker_id) * 16 + level"
"""The level of the last day, on the highest broker; a struct would be sorted by."""


def _sums_by_spark(days: DataFrame) -> "_Sums":
    units = "cast(round(coalesce(bytes, p50 * minutes_present * 1000)) as decimal(38, 0))"
    sums = days.groupBy(*_OF_BUCKET).agg(
        sf.sum(sf.expr(units)).alias("units"), (sf.max(sf.expr(_LAST)) % 16).alias("level")
    )
    found = sums.toArrow()
    units_of = np.array([int(each) for each in found["units"].to_pylist()], object)
    return _Sums(found.select(_OF_BUCKET), units_of, found["level"].to_numpy())


@dataclass(frozen=True, slots=True)
class _Sums:
    """What buckets used on all days.

    Attributes:
        buckets: Cluster, key and id.
        units: Whole bytes, or thousandths of other units.
        level: Of the last day, on the highest broker.
    """

    buckets: pa.Table
    units: Numbers
    level: Numbers


def _sums_of(days: pa.Table) -> _Sums:
    minutes = days["minutes_present"].to_numpy().astype(float)
    other = days["p50"].to_numpy() * minutes * 1000
    whole = days["bytes"].cast(pa.float64()).to_numpy()
    units = whole_numbers(np.where(np.isnan(whole), other, whole))
    bucket, day = days["bucket_id"].to_numpy(), days["dt"].cast(pa.int32()).to_numpy()
    order = np.lexsort((days["broker_id"].to_numpy(), day, bucket))
    begins = begins_of(bucket[order])
    ends = np.append(begins[1:], len(order))[: len(begins)] - 1
    sums = np.add.reduceat(units[order], begins) if len(order) else units
    last = days.select([*_OF_BUCKET, "level"]).take(pa.array(order[ends]))
    return _Sums(last.select(_OF_BUCKET), sums, last["level"].to_numpy())


def _ranked(sums: _Sums, top: int) -> pa.Table:
    """Return ``bucket_id`` and ``share`` of those of each cluster and key that used most."""
    names = [ranks_of(sums.buckets[name]) for name in ("cluster_id", "key")]
    ids = sums.buckets["bucket_id"].to_numpy()
    is_open = np.isin(sums.level, _UNCOVERED) & (sums.units > 0).astype(bool)
    buckets: list[int] = []
    shares: list[float] = []
    order = np.lexsort(names)
    begins = begins_of(*(each[order] for each in names)).tolist()
    for begin, end in pairwise([*begins, len(order)]):
        rows = order[begin:end]
        total = float(sum(sums.units[rows].tolist()))
        chosen = rows[is_open[rows]]
        used = zip((-sums.units[chosen]).tolist(), ids[chosen].tolist(), strict=True)
        largest = nsmallest(top, used)
        buckets += [bucket for _, bucket in largest]
        shares += [float(-units) / total for units, _ in largest]
    return pa.table(
        {"bucket_id": pa.array(buckets, pa.int64()), "share": pa.array(shares, pa.float64())}
    )


def _described(days: pa.Table, ranked: pa.Table) -> pa.Table:
    """Return what the chosen buckets used, from all of their days on brokers."""
    bucket, broker = (days[name].to_numpy() for name in ("bucket_id", "broker_id"))
    day, p99 = days["dt"].cast(pa.int32()).to_numpy(), days["p99"].to_numpy()
    order = np.lexsort((broker, day, bucket))
    begins = begins_of(bucket[order])
    if not len(begins):
        return pa.table({"cluster_id": [], "bucket_id": pa.array([], pa.int64())})
    ends = np.append(begins[1:], len(order)) - 1
    # Of days and brokers that are as high the highest broker.
    busiest = days.take(pa.array(np.lexsort((broker, p99, bucket))[ends]))
    last = days.take(pa.array(order[ends]))
    ordered = days.take(pa.array(order)).combine_chunks()
    minutes = ordered["minutes_present"].to_numpy().astype(np.int64)
    has_bytes = np.logical_or.reduceat(ordered["bytes"].is_valid().to_numpy(), begins)
    whole = np.add.reduceat(ordered["bytes"].fill_null(0).to_numpy(), begins)
    same_day = begins_of(bucket[order], day[order])
    share = dict(zip(*(ranked[name].to_pylist() for name in ("bucket_id", "share")), strict=True))
    return pa.table(
        {
            **{name: last[name] for name in (*_OF_BUCKET, "level", "limit")},
            "share": [share[each] for each in last["bucket_id"].to_pylist()],
            "bytes": pa.array(whole, mask=~has_bytes),
            "minutes": np.add.reduceat(minutes, begins),
            "peak": np.maximum.reduceat(ordered["peak"].to_numpy(), begins),
            **{name: busiest[name] for name in ("broker_id", "p99")},
            "days": np.diff(np.searchsorted(same_day, np.append(begins, len(order)))),
        }
    )
