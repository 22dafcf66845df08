"""What the audit log says after a run, straight from its rows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import psycopg

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history import Write

_ROWS = """
select alteration_id, ordinal, payload, pg_xact_commit_timestamp(xmin)
from audit_event where event_type not in ('denied', 'validated', 'rejected')
order by received_at, alteration_id, ordinal, seq
"""
_SLOTS = "select alteration_id::text, ordinal from entity_slot order by 1, 2"
_STATES = 'select entity, "values" from entity_state'


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """What was said of an entity after its intent.

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
    """The story of one entity of an alteration.

    Attributes:
        at: When its slot was held, by the database's clock.
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
        """Whether recovery had the last word."""
        return any(event.kind == "recovery" for event in self.conclusions)

    @property
    def applied_late(self) -> bool:
        """Whether drift was linked to it."""
        return any(event.kind == "drift" for event in self.events)

    @property
    def entity(self) -> ClientQuotaEntity:
        """Whose quotas."""
        return self.writes[0].entity


@dataclass(frozen=True, slots=True)
class Audit:
    """The log, and the working data beside it.

    Attributes:
        entities: Of alterations, in the order of their intents.
        open_slots: (alteration id, ordinal).
        states: The last audited values of each entity that has any.
        drift: What others changed, or what was applied late.
    """

    entities: Sequence[AuditedEntity]
    open_slots: Sequence[tuple[str, int]] = ()
    states: Mapping[ClientQuotaEntity, Mapping[str, float]] | None = None
    drift: Sequence[Write] = ()


def read_audit(database_url: str) -> Audit:
    """Read it, as the superuser of a server that tracks commit timestamps."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(_ROWS).fetchall()
        slots = connection.execute(_SLOTS).fetchall()
        states = connection.execute(_STATES).fetchall()
    entities: list[AuditedEntity] = []
    drift: list[Write] = []
    for (alteration_id, ordinal), story in groupby(rows, key=lambda row: row[:2]):
        documents = [(json.loads(payload), committed) for _, _, payload, committed in story]
        start = documents[0][0]
        if ordinal < 0:
            continue
        if start["event"] == "intent":
            entities.append(_entity(str(alteration_id), documents))
        else:
            drift += _writes(start)
    known = {ClientQuotaEntity.of(json.loads(entity)): _values(text) for entity, text in states}
    entities.sort(key=lambda one: (one.at, one.alteration_id, one.ordinal))
    return Audit(entities, slots, known, drift)


def _entity(
    alteration_id: str, documents: Sequence[tuple[Mapping[str, Any], datetime]]
) -> AuditedEntity:
    start, committed_at = documents[0]
    return AuditedEntity(
        alteration_id,
        start["ordinal"],
        _writes(start),
        datetime.fromisoformat(start["at"]),
        committed_at,
        tuple(_event(document) for document, _ in documents[1:]),
    )


def _event(document: Mapping[str, Any]) -> AuditEvent:
    outcome = document.get("result", {}).get("outcome")
    fences = document.get("evidence", {}).get("fences")
    definite = outcome not in {None, "unknown"}
    return AuditEvent(
        document["event"],
        datetime.fromisoformat(document["occurred_at"]),
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
