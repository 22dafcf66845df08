"""Domain values to rows of the log."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from app.domain.alterations import AlterationResult, Outcome
from app.domain.entities import ClientQuotaEntity
from app.postgres.canonical import (
    Document,
    canonical_json,
    leaf_hash,
    op_to_json,
    result_to_json,
    values_to_json,
)
from app.postgres.entity_columns import entity_columns
from app.postgres.tables import REQUEST_ORDINAL
from app.service.audit_records import AuditConclusion, AuditEntity, AuditRequest
from app.service.identifiers import time_of

SCHEMA: Final = 1
"""The layout of the payloads; it is part of each."""

_NO_ENTITY: Final = ClientQuotaEntity(())

_FINAL_EVENTS: Final[Mapping[str, str]] = {"denied": "denied", "drift": "drift"}
"""How a story begins that ends at once, by action; ``validated`` for any other."""


class EventRow(NamedTuple):
    """A row as it is written, in the order of the COPY; times and ids are text already."""

    received_at: str
    alteration_id: str
    ordinal: int
    event_type: str
    at: str
    occurred_at: str
    payload: str
    leaf_hash: bytes
    seq: int = 0
    verdict: str | None = None
    cluster_id: str | None = None
    principal: str | None = None
    action: str | None = None
    user_kind: str | None = None
    user_name: bytes | None = None
    client_id_kind: str | None = None
    client_id_name: bytes | None = None
    ip_kind: str | None = None
    ip_name: bytes | None = None
    other_types: bool | None = None


def time_text(at: datetime) -> str:
    """Return a time of the database as payloads have it."""
    return at.isoformat(timespec="microseconds")


def intent_rows(request: AuditRequest, at: str) -> Iterator[EventRow]:
    """Return the rows of a request that is about to be sent."""
    events = EventRows(request.alteration_id, "intent", at, at)
    yield _request_row(request, events)
    for entity in request.entities:
        yield _start_row(request, events, entity)
    yield from _local_refusals(request, at)


def final_rows(
    request: AuditRequest, results: Mapping[int, AlterationResult], at: str
) -> Iterator[EventRow]:
    """Return the rows of a request that is over at once: denied, judged only, or not ours."""
    event = _FINAL_EVENTS.get(request.action, "validated")
    events = EventRows(request.alteration_id, event, at, at)
    yield _request_row(request, events)
    for entity in request.entities or (None,):
        yield _start_row(request, events, entity, results.get(entity.ordinal if entity else 0))
    yield from _local_refusals(request, at)


def outcome_rows(conclusion: AuditConclusion, at: str, occurred_at: str) -> Iterator[EventRow]:
    """Return a row for each result; the first one carries the events on the way."""
    rows = EventRows(conclusion.alteration_id, "outcome", at, occurred_at)
    events = [[time.isoformat(), event, detail] for time, event, detail in conclusion.events]
    for ordinal, result in sorted(conclusion.results.items()):
        document = {"result": result_to_json(result), "events": events}
        yield rows.row(ordinal, document, {"seq": 1, "verdict": result.outcome.value})
        events = []


class EventRows:
    """One kind of event of one alteration: what its rows share is worked out once."""

    def __init__(self, alteration_id: str, event: str, at: str, occurred_at: str) -> None:
        self.event = event
        self._received_at = time_of(alteration_id).isoformat()
        self._document: Document = {
            "schema": SCHEMA,
            "alteration_id": alteration_id,
            "event": event,
            "at": at,
            "occurred_at": occurred_at,
        }

    def row(self, ordinal: int, document: Document, columns: Mapping[str, Any]) -> EventRow:
        """Return a row whose payload says what its columns say, and its document."""
        common = self._document
        payload = canonical_json({**common, "ordinal": ordinal, **document})
        return EventRow(
            self._received_at,
            common["alteration_id"],
            ordinal,
            self.event,
            common["at"],
            common["occurred_at"],
            payload,
            leaf_hash(payload),
            **columns,
        )


def _request_row(request: AuditRequest, events: EventRows) -> EventRow:
    document = {
        "cluster_id": request.cluster_id,
        "principal": request.caller.principal,
        "client_address": request.caller.host,
        "authentication": request.caller.authentication,
        "action": request.action,
        "request_id": request.request_id,
        "reason": request.reason,
        "decision": dict(request.decision),
        "options": dict(request.options),
        "broker_id": request.broker_id,
    }
    return events.row(REQUEST_ORDINAL, document, _request_columns(request))


def _start_row(
    request: AuditRequest,
    events: EventRows,
    entity: AuditEntity | None,
    result: AlterationResult | None = None,
) -> EventRow:
    columns = _request_columns(request)
    document: Document = {"entity": None, "ops": None, "before": None, "warnings": []}
    if entity is not None:
        columns |= entity_columns(entity.alteration.entity)
        document = {
            "entity": entity.alteration.entity.as_dict(),
            "ops": [op_to_json(op) for op in entity.alteration.ops],
            "before": values_to_json(entity.before),
            "warnings": list(entity.warnings),
        }
    if events.event != "intent":
        document["result"] = result_to_json(result or _missing_result(events.event, entity))
        columns["verdict"] = document["result"]["outcome"]
    ordinal = entity.ordinal if entity is not None else 0
    return events.row(ordinal, document, columns)


def _local_refusals(request: AuditRequest, at: str) -> Iterator[EventRow]:
    events = EventRows(request.alteration_id, "rejected", at, at)
    for ordinal, result in request.local_refusals.items():
        document = {"entity": result.entity.as_dict(), "result": result_to_json(result)}
        columns = {**_request_columns(request), "verdict": result.outcome.value}
        yield events.row(ordinal, document, columns)


def _request_columns(request: AuditRequest) -> dict[str, Any]:
    return {
        "cluster_id": request.cluster_id,
        "principal": request.caller.principal,
        "action": request.action,
    }


def _missing_result(event: str, entity: AuditEntity | None) -> AlterationResult:
    outcome = Outcome.REFUSED if event == "denied" else Outcome.UNKNOWN
    return AlterationResult(entity.alteration.entity if entity else _NO_ENTITY, outcome)
