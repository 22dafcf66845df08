"""Which quotas held when: the audit log folded by entity, with snapshots in its gaps.

The log of the service is read in the order of the cluster's metadata log.
"""

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import IsolationLevel
from psycopg.rows import namedtuple_row

from app.domain.alterations import Op, Outcome, Values, apply_ops, same_value, same_values
from app.domain.entities import ClientQuotaEntity, EntityType
from app.pipeline.run_records import connect

_ROWS_AT_ONCE: Final = 2_000

_ENTRIES: Final = """
    select started.alteration_id, started.cluster_id, started.at, started.document as start, (
        select later.document from audit_entity_event as later
        where later.received_at = started.received_at
          and later.alteration_id = started.alteration_id and later.ordinal = started.ordinal
          and later.seq > 0 and later.verdict is not null
        order by later.seq desc limit 1
      ) as conclusion
    from audit_entity_event as started
    where started.seq = 0 and started.event_type in ('intent', 'drift')
      and (%(cluster)s::text is null or started.cluster_id = %(cluster)s)
    order by started.at, started.alteration_id, started.ordinal
"""
"""What was sent and what others changed, each with its latest conclusion."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entity of one alteration, or one change that others made.

    Attributes:
        at: When it was begun, under the entity's lock.
        before: The entity's values then; null where they are not recorded.
        after: Its values afterwards; null where they are not recorded.
    """

    alteration_id: UUID
    cluster_id: str
    at: datetime
    entity: ClientQuotaEntity
    ops: tuple[Op, ...]
    before: Values | None
    after: Values | None
    outcome: Outcome

    @property
    def seq(self) -> int:
        """The first 63 bits of the alteration's id, which begins with its time.

        It grows with the log, and other rows of the log never change it.
        """
        return self.alteration_id.int >> 65


def read_audit_log(url: str, cluster: str | None) -> Iterator[AuditEntry]:
    """Return what the log says, all of it as of one time; nothing is written or locked.

    The service's role suffices; a cluster of null is all of them.

    Raises:
        UsageError: The address cannot be read.
        InfrastructureError: Postgres cannot be reached, or was not migrated.
    """
    with connect(url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        named = connection.cursor("audit_log", row_factory=namedtuple_row)
        with connection.transaction(), named as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            for row in cursor.execute(_ENTRIES, {"cluster": cluster}):
                yield _entry(row)


def _entry(row: Any) -> AuditEntry:
    start = json.loads(row.start)
    end = start if row.conclusion is None else json.loads(row.conclusion)
    result = end.get("result", {})
    return AuditEntry(
        row.alteration_id,
        row.cluster_id,
        row.at,
        ClientQuotaEntity.of(start["entity"]),
        tuple(_ops(start["ops"])),
        _values(result.get("before")) if _is_before_proven(end) else None,
        _values(result.get("after")),
        Outcome(result.get("outcome", Outcome.UNKNOWN)),
    )


def _is_before_proven(end: Mapping[str, Any]) -> bool:
    """Tell whether it was read under the entity's lock; of what recovery found it may not be."""
    evidence = end.get("evidence")
    return evidence is None or "late_answer" in evidence or bool(evidence.get("before_is_proven"))


def _values(document: Mapping[str, Any] | None) -> Values | None:
    """Return float64 values; NaN and infinity are stored as text."""
    if document is None:
        return None
    return {key: float(value) for key, value in document.items()}


def _ops(documents: Sequence[Mapping[str, Any]]) -> Iterator[Op]:
    for document in documents:
        value = document.get("value")
        exact = None if value is None else Decimal(str(value))
        yield Op(document["key"], exact, document.get("remove", False))


_COLUMNS: Final = (
    (EntityType.USER.value, "user", "user_default"),
    (EntityType.CLIENT_ID.value, "client_id", "client_default"),
)
_QUOTA: Final = ("cluster_id", "user", "user_default", "client_id", "client_default", "key")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one entity held when everything was described; empty where it was not there."""

    cluster_id: str
    entity: ClientQuotaEntity
    at: datetime
    values: Values


def entity_columns(entity: ClientQuotaEntity) -> Mapping[str, Any]:
    """Return the columns of ``quota_version`` that name an entity."""
    names = entity.as_dict()
    columns: dict[str, Any] = {}
    for kind, name, flag in _COLUMNS:
        columns[name] = names.get(kind) or ""
        columns[flag] = kind in names and names[kind] is None
    return columns


def entity_of_columns(row: Mapping[str, Any]) -> ClientQuotaEntity:
    """Return the entity that columns of ``quota_version`` or ``quota_snapshot`` name."""
    names: dict[str, str | None] = {}
    for kind, name, flag in _COLUMNS:
        if row[flag] or row[name]:
            names[kind] = None if row[flag] else row[name]
    return ClientQuotaEntity.of(names)


def snapshots_of(rows: Iterable[Mapping[str, Any]]) -> list[Snapshot]:
    """Return what rows of ``quota_snapshot`` say of each entity, in order of time."""
    taken: dict[str, set[datetime]] = {}
    seen: dict[tuple[str, ClientQuotaEntity], dict[datetime, dict[str, float]]] = {}
    for row in rows:
        taken.setdefault(row["cluster_id"], set()).add(row["taken_at"])
        position = (row["cluster_id"], entity_of_columns(row))
        seen.setdefault(position, {}).setdefault(row["taken_at"], {})[row["key"]] = row["value"]
    snapshots = (
        Snapshot(cluster_id, entity, time, values.get(time, {}))
        for (cluster_id, entity), values in seen.items()
        for time in taken[cluster_id]
    )
    return sorted(snapshots, key=lambda snapshot: snapshot.at)


def join_versions(stored: pa.Table, live: pa.Table, taken_at: datetime) -> pa.Table:
    """Return the stored versions as a later snapshot shows them.

    A value that holds as it is stored goes on, one that does not ends when the snapshot was taken,
    and what the snapshot alone has begins then. What begins later is left alone. Both have the
    columns of ``quota_version``; ``taken_at`` is in UTC.
    """
    same = [*_QUOTA, "value"]
    current = live.select(same)
    is_open, is_later = pc.field("valid_to").is_null(), pc.field("valid_from") > taken_at
    earlier, later = (stored.filter(is_open & each) for each in (~is_later, is_later))
    held = pa.concat_tables([later, earlier.join(current, same, join_type="left semi")])
    changed = earlier.join(current, same, join_type="left anti")
    end = pa.repeat(pa.scalar(taken_at, stored.schema.field("valid_to").type), len(changed))
    changed = changed.set_column(changed.column_names.index("valid_to"), "valid_to", end)
    changed = changed.filter(pc.field("valid_from") < taken_at)
    new = live.join(held.select(_QUOTA), [*_QUOTA], join_type="left anti")
    return pa.concat_tables([stored.filter(~is_open), held, changed, new])


UNKNOWN_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The beginning of a value that has no recorded beginning."""

SETTLING: Final = timedelta(seconds=30)
"""How long after an alteration's beginning a snapshot may still show what held before."""

AUDIT: Final = "audit"
SNAPSHOT: Final = "snapshot"
INFERRED: Final = "inferred"

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_TYPES: Final = frozenset({EntityType.USER.value, EntityType.CLIENT_ID.value})
_MADE: Final = frozenset({Outcome.APPLIED, Outcome.OBSERVED_OTHER})
_FAILED: Final = frozenset({Outcome.REFUSED, Outcome.NOT_APPLIED, Outcome.NOT_SENT})
_DOUBTFUL: Final = frozenset({Outcome.UNKNOWN, Outcome.SUPERSEDED})


@dataclass
class EntityHistory:
    """Folds all that was recorded of one entity, in order of time.

    ``names`` are the columns of cluster and entity, ``versions`` the values that have ended, and
    ``failed`` the rows of ``quota_failed`` by key.
    """

    names: Mapping[str, Any]
    versions: list[dict[str, Any]] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)
    _current: dict[str, dict[str, Any]] = field(default_factory=dict)
    _is_seen: bool = False
    _doubtful: list[AuditEntry] = field(default_factory=list)
    _last_sent: datetime | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all versions, those that still hold with an open end."""
        yield from self.versions
        yield from self._current.values()

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Take the next fact, a snapshot; it is not earlier than the one before."""
        if self._last_sent is not None and snapshot.at - self._last_sent < SETTLING:
            return
        if self._differs(snapshot.values):
            self._settle_doubts(snapshot.values)
        if self._is_seen and self._differs(snapshot.values):
            sentence = f"a snapshot shows {_text(snapshot.values)}, the log {_text(self._values())}"
            self._add_conflict(snapshot.at, sentence)
        self._doubtful.clear()
        self._set(snapshot.values, snapshot.at, SNAPSHOT)

    def add_entry(self, entry: AuditEntry) -> None:
        """Take the next fact, an entry; it is not earlier than the one before."""
        if entry.before is not None:
            self._reconcile(entry, entry.before)
        for op in entry.ops:
            self.failed.pop(op.key, None)
            if entry.outcome in _FAILED:
                self.failed[op.key] = {
                    **self.names,
                    "key": op.key,
                    "value": None if op.value is None else float(op.value),
                    "at": entry.at,
                    "outcome": entry.outcome.value,
                    "alteration_id": str(entry.alteration_id),
                }
        if entry.outcome in _DOUBTFUL:
            self._doubtful.append(entry)
        if entry.outcome in _MADE | _DOUBTFUL:
            self._last_sent = entry.at
        if entry.outcome in _MADE:
            after = entry.after
            if after is None:
                after = apply_ops(self._values(), entry.ops)
            self._set(after, entry.at, AUDIT, entry)

    def _reconcile(self, entry: AuditEntry, before: Values) -> None:
        """Compare what an entry found with the current values."""
        if not self._is_seen:
            self._set(before, UNKNOWN_BEGIN, INFERRED)
        elif self._differs(before):
            self._settle_doubts(before)
        if self._differs(before):
            sentence = f"an alteration found {_text(before)}, the log says {_text(self._values())}"
            self._add_conflict(entry.at, sentence)
            self._set(before, entry.at, INFERRED)
        self._doubtful.clear()

    def _settle_doubts(self, seen: Values) -> None:
        """Find the alteration of unknown outcome that explains what was seen."""
        for entry in reversed(self._doubtful):
            intended = apply_ops(self._values(), entry.ops)
            if same_values(intended, seen):
                self._set(seen, entry.at, AUDIT, entry)
                return

    def _set(
        self, values: Values, at: datetime, origin: str, entry: AuditEntry | None = None
    ) -> None:
        self._is_seen = True
        for key in sorted({*self._current, *values}):
            current, value = self._current.get(key), values.get(key)
            if current is not None and same_value(current["value"], value):
                continue
            if current is not None:
                del self._current[key]
                if current["valid_from"] < at:
                    self.versions.append({**current, "valid_to": at})
            if value is not None:
                self._current[key] = {
                    **self.names,
                    "key": key,
                    "value": value,
                    "valid_from": at,
                    "valid_to": None,
                    "origin": origin,
                    "audit_seq": None if entry is None else entry.seq,
                    "alteration_id": None if entry is None else str(entry.alteration_id),
                }

    def _add_conflict(self, at: datetime, sentence: str) -> None:
        self.conflicts.append({**self.names, "at": at, "conflict": sentence})

    def _values(self) -> dict[str, float]:
        return {key: row["value"] for key, row in self._current.items()}

    def _differs(self, values: Values) -> bool:
        return not same_values(self._values(), values)


class QuotaHistory:
    """A whole log, and the snapshots that were taken meanwhile, folded by entity."""

    def __init__(self, entries: Iterable[AuditEntry], snapshots: Iterable[Snapshot]) -> None:
        """Fold both; each is in order of time. What no level has, such as an ip, is left out."""
        self._entities: dict[tuple[str, ClientQuotaEntity], EntityHistory] = {}
        streams: tuple[Iterable[AuditEntry | Snapshot], ...] = (entries, snapshots)
        for fact in heapq.merge(*streams, key=lambda fact: fact.at):
            if fact.entity.types <= _TYPES and _is_text(fact.entity):
                position = (fact.cluster_id, fact.entity)
                if position not in self._entities:
                    names = {"cluster_id": fact.cluster_id, **entity_columns(fact.entity)}
                    self._entities[position] = EntityHistory(names)
                history = self._entities[position]
                if isinstance(fact, Snapshot):
                    history.add_snapshot(fact)
                else:
                    history.add_entry(fact)

    def rows(self) -> list[dict[str, Any]]:
        """Return rows of ``quota_version``."""
        return [row for history in self._entities.values() for row in history.rows()]

    def conflicts(self) -> list[dict[str, Any]]:
        """Return rows of ``quota_conflict``, in order of time within each entity."""
        return [row for history in self._entities.values() for row in history.conflicts]

    def failed(self) -> list[dict[str, Any]]:
        """Return rows of ``quota_failed``."""
        return [row for history in self._entities.values() for row in history.failed.values()]


def _is_text(entity: ClientQuotaEntity) -> bool:
    """Tell whether no name holds half a character, which no broker stores."""
    return not any(_LONE_SURROGATE.search(name) for _, name in entity.entries if name)


def _text(values: Values) -> str:
    return ", ".join(f"{key}={value:g}" for key, value in sorted(values.items())) or "nothing"
