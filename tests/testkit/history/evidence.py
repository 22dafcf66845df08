"""What a run left behind: the rows of the audit log, and an index over all the evidence."""

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import psycopg
from psycopg.rows import namedtuple_row

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Call, LogRecord, Write

_ROWS = """
select alteration_id, ordinal, event_type, at, occurred_at, document, committed_at
from audit_entity_event join (
    select received_at, alteration_id, seq, pg_xact_commit_timestamp(xmin) as committed_at
    from audit_event
  ) as event using (received_at, alteration_id, seq)
where event_type not in ('denied', 'validated')
  and exists (select from audit_event as request
    where request.received_at = audit_entity_event.received_at
      and request.alteration_id = audit_entity_event.alteration_id
      and request.seq = 0 and request.cluster_id = %s)
order by received_at, alteration_id, ordinal, seq
"""
_LOCKS = """select alteration_id::text, ordinal from quota_entity
where alteration_id is not null and cluster_id = %s order by 1, 2"""
_STATES = 'select entity, "values" from quota_entity where version > 0 and cluster_id = %s'


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """What the log says of an entity after its intent.

    Attributes:
        kind: ``outcome``, ``recovery``, ``superseded``, or ``drift``, which says that it was
            applied late.
        at: By the database's clock, before it was committed.
        outcome: What it says, or null.
        final: Whether that is a conclusion.
        fenced_at: For what recovery saw: when the first of its fences was answered.
    """

    kind: str
    at: datetime
    outcome: str | None = None
    final: bool = False
    fenced_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditedEntity:
    """What the log has of one entity of an alteration.

    Attributes:
        at: When its lock was held, by the database's clock.
        committed_at: When its intent was committed.
    """

    alteration_id: str
    ordinal: int
    writes: tuple[Write, ...]
    at: datetime
    committed_at: datetime
    events: tuple[AuditEvent, ...] = ()

    @property
    def conclusions(self) -> tuple[AuditEvent, ...]:
        """Every definite word; there should be one."""
        return tuple(event for event in self.events if event.final)

    @property
    def outcome(self) -> str | None:
        """The definite word, or null while there is none."""
        return self.conclusions[0].outcome if self.conclusions else None

    @property
    def was_recovered(self) -> bool:
        return any(event.kind == "recovery" for event in self.conclusions)

    @property
    def applied_late(self) -> bool:
        return any(event.kind == "drift" for event in self.events)

    @property
    def entity(self) -> ClientQuotaEntity:
        return self.writes[0].entity


@dataclass(frozen=True, slots=True)
class Audit:
    """The log, and the working data beside it.

    Attributes:
        entities: Of alterations, in the order of their intents.
        open_locks: (alteration id, ordinal).
        states: The last audited values of each entity that has any.
        drift: What others changed, or what was applied late.
    """

    entities: Sequence[AuditedEntity]
    open_locks: Sequence[tuple[str, int]] = ()
    states: Mapping[ClientQuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    drift: Sequence[Write] = ()


def read_audit(database_url: str, cluster_id: str) -> Audit:
    """Read that of a cluster, as the superuser of a server that tracks commit timestamps."""
    cluster = [cluster_id]
    with psycopg.connect(database_url, row_factory=namedtuple_row) as connection:
        rows = connection.execute(_ROWS, cluster).fetchall()
        locks = connection.execute(_LOCKS, cluster).fetchall()
        states = connection.execute(_STATES, cluster).fetchall()
    entities: list[AuditedEntity] = []
    drift: list[Write] = []
    for (alteration_id, _), group in groupby(rows, key=lambda row: row[:2]):
        start, *later = group
        document = json.loads(start.document)
        if start.event_type == "intent":
            entities.append(_entity(str(alteration_id), start, document, later))
        else:
            drift += _writes(document)
    stored = {ClientQuotaEntity.of(json.loads(entity)): _values(text) for entity, text in states}
    entities.sort(key=lambda item: (item.at, item.alteration_id, item.ordinal))
    return Audit(entities, locks, stored, drift)


def _entity(
    alteration_id: str, start: Any, document: Mapping[str, Any], later: Sequence[Any]
) -> AuditedEntity:
    return AuditedEntity(
        alteration_id,
        start.ordinal,
        _writes(document),
        start.at,
        start.committed_at,
        tuple(_event(row) for row in later),
    )


def _event(row: Any) -> AuditEvent:
    document = json.loads(row.document)
    outcome = document.get("result", {}).get("outcome")
    fences = document.get("evidence", {}).get("fences")
    definite = outcome not in {None, "unknown"}
    return AuditEvent(
        row.event_type,
        row.occurred_at,
        outcome,
        definite and document.get("final", True),
        datetime.fromisoformat(fences[0]) if fences else None,
    )


def _writes(start: Mapping[str, Any]) -> tuple[Write, ...]:
    entity = ClientQuotaEntity.of(start["entity"])
    return tuple(
        Write(entity, op["key"], None if op.get("remove") else float(op["value"]))
        for op in start["ops"]
    )


def _values(text: str) -> dict[str, float]:
    values: Iterable[tuple[str, Any]] = json.loads(text).items()
    return {key: float(value) for key, value in values}


Described = Mapping[ClientQuotaEntity, Mapping[str, float]]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class Evidence:
    """All evidence after a run has come to rest.

    Attributes:
        calls: What the clients saw.
        audit: What the log says.
        records: What the cluster did: its metadata log.
        described: What a broker shows at the end.
        documents: What the service shows at the end of each alteration that a client knows.
        bounded: Whether nothing was applied later than the final verdict allows for; otherwise a
            late apply must be in the log as drift.
    """

    calls: Sequence[Call]
    audit: Audit
    records: Sequence[LogRecord]
    described: Described
    documents: Mapping[str, Mapping[ClientQuotaEntity, str]] = field(default_factory=dict)
    bounded: bool = True

    @cached_property
    def records_of(self) -> Mapping[Write, list[LogRecord]]:
        """The records that a write left in the metadata log."""
        return _grouped((record.write, record) for record in self.records)

    @cached_property
    def records_by_key(self) -> Mapping[tuple[ClientQuotaEntity, str], list[LogRecord]]:
        """The records of one key of one entity, in the order of the log."""
        return _grouped((record.write[:2], record) for record in self.records)

    @cached_property
    def audited_of(self) -> Mapping[Write, list[AuditedEntity]]:
        return _grouped(
            (write, entity) for entity in self.audit.entities for write in entity.writes
        )

    @cached_property
    def recorded(self) -> Mapping[tuple[str, Write], list[LogRecord]]:
        """The records that a write of an alteration left, by the alteration's id.

        A request of which nothing was sent may be repeated with its key, and is another alteration
        then: a record is of the last one that was committed when it was written.
        """
        return _grouped(
            ((self._owner_of(record).alteration_id, record.write), record)
            for record in self.records
            if record.write in self.audited_of
        )

    def _owner_of(self, record: LogRecord) -> AuditedEntity:
        intents = self.audited_of[record.write]
        before = [intent for intent in intents if intent.committed_at <= record.latest]
        return before[-1] if before else intents[0]

    @cached_property
    def calls_of(self) -> Mapping[Write, list[Call]]:
        return _grouped((write, call) for call in self.calls for write in call.writes)

    @cached_property
    def audited_by_id(self) -> Mapping[str, list[AuditedEntity]]:
        """The entities of each alteration, by ordinal."""
        return _grouped((entity.alteration_id, entity) for entity in self.audit.entities)


def _grouped(pairs: Iterable[tuple[K, V]]) -> Mapping[K, list[V]]:
    groups: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
