"""Alterations as the log has them, read back: a record of its events, a page of its rows."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final

from app.domain.alterations import AlterationResult, KafkaRefusal, Op, Outcome
from app.domain.entities import Caller, ClientQuotaEntity, show_entity
from app.postgres.payload import Document, number_to_json, values_from_json
from app.postgres.pool import Row
from app.service.ports.alterations import (
    DEFAULT_WAIT_MS,
    Alteration,
    AlterationRecord,
    Change,
    Wait,
)
from app.service.ports.audit_log import AuditPage, AuditRow


def page_of(rows: Sequence[Row], limit: int) -> AuditPage:
    """Return the page that the rows make."""
    page = rows[:limit]
    requests = {row.alteration_id: row.request for row in page}
    read = {alteration_id: json.loads(record) for alteration_id, record in requests.items()}
    listed = [
        audit_row(
            row.at,
            read[row.alteration_id],
            json.loads(row.start),
            None if row.conclusion is None else json.loads(row.conclusion),
        )
        for row in page
    ]
    if len(rows) <= limit:
        return AuditPage(listed, None)
    last = page[-1]
    return AuditPage(listed, (last.at.astimezone(UTC), str(last.alteration_id), last.ordinal))


_DETAILS: Final[Mapping[str, tuple[str, str]]] = {
    "intent": ("intent", "committed before anything was sent"),
    "denied": ("outcome", "denied; nothing was sent"),
    "validated": ("outcome", "judged; nothing was changed"),
    "drift": ("outcome", "seen in the cluster; this service did not make the change"),
}
"""The first event of a history, by its kind: event and detail."""


EVENTS: Final = """
    select at, occurred_at, payload, rejected, (
        select string_agg(document, ',' order by ordinal) from audit_entity
        where received_at = event.received_at and alteration_id = event.alteration_id
          and seq = event.seq
      ) as documents
    from audit_event as event
    where received_at = %(received_at)s and alteration_id = %(alteration_id)s
    order by seq
    """


def alteration_record(events: Sequence[Row]) -> AlterationRecord:
    """Return an alteration from its events, in order."""
    start, *later = map(_whole_event, events)
    at = start["occurred_at"]
    entities = [entry for entry in start["entities"] if entry["entity"] is not None]
    started = {entry["ordinal"]: entry for entry in entities}
    rejected = _results(start["rejected"])
    for event in later:
        rejected |= _results(event["rejected"])
        if event["event"] == "expiry":
            start["options"]["expires_at"] = event["expires_at"]
    concluded = _results(entities) | _ends(later, started)
    open_results = {n: _open(entry) for n, entry in started.items() if n not in concluded}
    reported = {entry["ordinal"] for event in later for entry in event["entities"]}
    return AlterationRecord(
        alteration=_alteration(start, entities, rejected),
        results=dict(sorted({**rejected, **concluded, **open_results}.items())),
        at=at,
        concluded=reported.issuperset(open_results),
        history=[(at, *_DETAILS[start["event"]]), *_history(later, started)],
    )


def audit_row(
    at: datetime, request: Document, start: Document, conclusion: Document | None
) -> AuditRow:
    """Return one row of the log: from the record of the request, and the entity's documents."""
    result = result_document(conclusion or start)
    return AuditRow(
        cluster_id=request["cluster_id"],
        alteration_id=request["alteration_id"],
        at=at.astimezone(UTC),
        principal=request["principal"],
        authentication=request["authentication"],
        client_address=request["client_address"],
        action=request["action"],
        entity=None if start["entity"] is None else ClientQuotaEntity.of(start["entity"]),
        ops=None if start["ops"] is None else [listed_op(op) for op in start["ops"]],
        before=values_from_json(result.get("before")),
        after=values_from_json(result.get("after")),
        outcome=result.get("outcome", Outcome.UNKNOWN.value),
        reason=request["reason"],
        request_id=request["request_id"],
        error=refusal_from_json(result.get("error")),
        plan=_plan(request, start),
        expires_at=_expires_at(request),
        expires=request["options"].get("expires"),
        denied=request["decision"].get("denied"),
    )


def _whole_event(row: Row) -> Document:
    return {
        **json.loads(row.payload),
        "occurred_at": row.occurred_at.astimezone(UTC),
        "entities": json.loads(f"[{row.documents or ''}]"),
        "rejected": json.loads(row.rejected or "[]"),
    }


def _plan(request: Document, start: Document) -> Document | None:
    """Return the plan behind a request, as far as it concerns one entity; null where none is."""
    plan: Document | None = request["options"].get("plan")
    if plan is None:
        return None
    return {**plan, "taken_over": plan["taken_over"].get(str(start["ordinal"]), {})}


def _expires_at(request: Document) -> datetime | None:
    written = request["options"].get("expires_at")
    return None if written is None else datetime.fromisoformat(written).astimezone(UTC)


def _alteration(
    start: Document, entities: Sequence[Document], rejected: Mapping[int, AlterationResult]
) -> Alteration:
    options = start["options"]
    return Alteration(
        caller=Caller(start["principal"], start["client_address"], start["authentication"]),
        request_id=start["request_id"],
        changes=tuple(map(change_from_json, entities)),
        action=start["action"],
        reason=start["reason"],
        evidence=start["decision"],
        validate_only=start["action"] == "validate",
        all_or_nothing=options.get("all_or_nothing", True),
        wait=Wait(options.get("wait", Wait.READABLE)),
        wait_ms=options.get("wait_ms", DEFAULT_WAIT_MS),
        expires_at=_expires_at(start),
        expires=options.get("expires"),
        local_refusals=rejected,
        alteration_id=start["alteration_id"],
        cluster_id=start["cluster_id"],
        broker_id=start["broker_id"],
    )


def _results(documents: Iterable[Document]) -> dict[int, AlterationResult]:
    return {
        entry["ordinal"]: result_from_json(
            ClientQuotaEntity.of(entry["entity"]), result_document(entry)
        )
        for entry in documents
        if "result" in entry
    }


def _ends(
    later: Iterable[Document], started: Mapping[int, Document]
) -> dict[int, AlterationResult]:
    """A final result comes last; an observation is not a result yet."""
    return _results(
        {**entry, "entity": started[entry["ordinal"]]["entity"]}
        for event in later
        for entry in event["entities"]
        if entry.get("final", True)
    )


def _open(document: Document) -> AlterationResult:
    change = change_from_json(document)
    return AlterationResult(change.entity, Outcome.UNKNOWN, warnings=change.warnings)


def _history(
    later: Iterable[Document], started: Mapping[int, Document]
) -> Iterator[tuple[datetime, str, str]]:
    """In the order of the database's clock; what concerns one of several entities names it."""
    names = {n: show_entity(entry["entity"]) for n, entry in started.items()}
    for event in sorted(later, key=itemgetter("occurred_at")):
        for time, kind, detail in event.get("events", ()):
            yield datetime.fromisoformat(time), kind, detail
        for entry in event["entities"]:
            if "detail" in entry:
                of = f" for {names[entry['ordinal']]}" if len(names) > 1 else ""
                yield event["occurred_at"], "recovery", f"{entry['detail']}{of}"


def op_from_json(document: Mapping[str, Any]) -> Op:
    """Return the operation that was written, its value with every digit."""
    value = document.get("value")
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    return Op(
        document["key"], None if exact is None else Decimal(exact), document.get("remove", False)
    )


def listed_op(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an operation as a reader of the log sees it: its value as the float64 sent."""
    value = document.get("value")
    if isinstance(value, str) and math.isfinite(float(value)):
        return {**document, "value": number_to_json(float(value))}
    return document


def result_document(document: Document) -> Document:
    """Return what an entity's document says of the result; empty where it has none.

    Where recovery found it, what held before is proven by the answer, or by what the owner has read
    under its lock; a document of layout 2 does not say so, and may have what nobody had locked.
    """
    result: Document = document.get("result", {})
    is_found = "final" in document and "late_answer" not in document["evidence"]
    if not is_found or document["evidence"].get("before_is_proven", False):
        return result
    return {**result, "before": None, "changed": None}


def result_from_json(entity: ClientQuotaEntity, document: Mapping[str, Any]) -> AlterationResult:
    """Return what became of the entity."""
    return AlterationResult(
        entity,
        Outcome(document["outcome"]),
        document["changed"],
        values_from_json(document["before"]),
        values_from_json(document["after"]),
        refusal_from_json(document["error"]),
        tuple(document["warnings"]),
    )


def refusal_from_json(document: Mapping[str, Any] | None) -> KafkaRefusal | None:
    """Return why an entity was refused, or null."""
    return None if document is None else KafkaRefusal(document["kafka_error"], document["message"])


def change_from_json(document: Document) -> Change:
    """Return one entity of an alteration, from its document in the first event."""
    return Change(
        ClientQuotaEntity.of(document["entity"]),
        tuple(map(op_from_json, document["ops"])),
        document["ordinal"],
        before=values_from_json(document["before"]),
        warnings=tuple(document["warnings"]),
    )
