"""Rows of the log to domain values."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

from app.domain.alterations import AlterationResult, ClientQuotaAlteration, Outcome
from app.domain.entities import Caller, ClientQuotaEntity, show_entity
from app.postgres.payload import (
    DRIFT,
    RECOVERY,
    SUPERSEDED,
    Document,
    listed_op,
    ops_from_json,
    refusal_from_json,
    result_from_json,
    values_from_json,
)
from app.service.ports.audit_log import AlterationRecord, AuditEntity, AuditRequest, AuditRow

_REJECTED: Final = "rejected"
_OUTCOME: Final = "outcome"

_LATER: Final = frozenset({RECOVERY, SUPERSEDED, DRIFT})

_DETAILS: Final[Mapping[str, tuple[str, str]]] = {
    "intent": ("intent", "committed before anything was sent"),
    "denied": ("outcome", "denied; nothing was sent"),
    "validated": ("outcome", "judged; nothing was changed"),
    "drift": ("outcome", "seen in the cluster; this service did not make the change"),
}
"""The first event of a history, by the kind of its first row: event and detail."""


def alteration_record(payloads: Sequence[str]) -> AlterationRecord:
    """Return an alteration from its rows' payloads, in the order of (ordinal, seq)."""
    documents = [json.loads(payload) for payload in payloads]
    request, at = documents[0], datetime.fromisoformat(documents[0]["at"])
    rejected = _results([one for one in documents if one["event"] == _REJECTED])
    entities = [
        one
        for one in documents
        if one["event"] == request["event"] and one.get("entity") is not None
    ]
    ends = [one for one in documents if one["event"] == _OUTCOME or _is_later(one)]
    concluded = {**_results(entities), **_ends(ends, entities)}
    open_results = {
        one["ordinal"]: _open(one) for one in entities if one["ordinal"] not in concluded
    }
    reported = {one["ordinal"] for one in ends}
    return AlterationRecord(
        request=_request(request, entities, rejected),
        at=at,
        results=dict(sorted({**rejected, **concluded, **open_results}.items())),
        concluded=reported.issuperset(open_results),
        history=[(at, *_DETAILS[request["event"]]), *_events(ends, entities)],
    )


def audit_row(
    at: datetime, request: Document, start: Document, conclusion: Document | None
) -> AuditRow:
    """Return one row of the log from the payloads of the request, the start and the outcome."""
    result = (conclusion or start).get("result", {})
    before = result.get("before")
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
        before=values_from_json(start["before"] if before is None else before),
        after=values_from_json(result.get("after")),
        outcome=result.get("outcome", Outcome.UNKNOWN.value),
        reason=request["reason"],
        request_id=request["request_id"],
        error=refusal_from_json(result.get("error")),
        plan=_plan(request, start),
        denied=request["decision"].get("denied"),
    )


def _plan(request: Document, start: Document) -> Document | None:
    """Return the plan behind a request, as far as it concerns one entity; null where none is."""
    plan: Document | None = request["options"].get("plan")
    if plan is None:
        return None
    return {**plan, "taken_over": plan["taken_over"].get(str(start["ordinal"]), {})}


def _request(
    document: Document, entities: Sequence[Document], rejected: Mapping[int, AlterationResult]
) -> AuditRequest:
    return AuditRequest(
        alteration_id=document["alteration_id"],
        cluster_id=document["cluster_id"],
        caller=Caller(
            document["principal"], document["client_address"], document["authentication"]
        ),
        action=document["action"],
        request_id=document["request_id"],
        entities=tuple(audit_entity(one) for one in entities),
        local_refusals=rejected,
        reason=document["reason"],
        decision=document["decision"],
        options=document["options"],
        broker_id=document["broker_id"],
    )


def audit_entity(document: Document) -> AuditEntity:
    """Return one entity of a request, from the payload of its start."""
    return AuditEntity(
        document["ordinal"],
        ClientQuotaAlteration(
            ClientQuotaEntity.of(document["entity"]), ops_from_json(document["ops"])
        ),
        values_from_json(document["before"]),
        tuple(document["warnings"]),
    )


def _results(documents: Sequence[Document]) -> dict[int, AlterationResult]:
    return {
        one["ordinal"]: result_from_json(ClientQuotaEntity.of(one["entity"]), one["result"])
        for one in documents
        if "result" in one
    }


def _ends(
    documents: Sequence[Document], entities: Sequence[Document]
) -> dict[int, AlterationResult]:
    """What is final comes last, and what was only observed so far is no result."""
    started = {one["ordinal"]: one for one in entities}
    ends = [
        {**one, "entity": started[one["ordinal"]]["entity"]}
        for one in documents
        if one.get("final", True)
    ]
    return {
        ordinal: result
        if result.before is not None
        else replace(result, before=values_from_json(started[ordinal]["before"]))
        for ordinal, result in _results(ends).items()
    }


def _open(document: Document) -> AlterationResult:
    entity = audit_entity(document)
    return AlterationResult(
        entity.alteration.entity,
        Outcome.UNKNOWN,
        before=entity.before,
        warnings=entity.warnings,
    )


def _is_later(document: Document) -> bool:
    return document["event"] in _LATER and "detail" in document


def _events(
    ends: Sequence[Document], entities: Sequence[Document]
) -> Iterator[tuple[datetime, str, str]]:
    """In the order of the database's clock; what concerns one of several entities names it."""
    names = {one["ordinal"]: show_entity(one["entity"]) for one in entities}
    for end in sorted(ends, key=itemgetter("occurred_at")):
        for time, event, detail in end.get("events", ()):
            yield datetime.fromisoformat(time), event, detail
        if _is_later(end):
            of = f" for {names[end['ordinal']]}" if len(names) > 1 else ""
            yield datetime.fromisoformat(end["occurred_at"]), RECOVERY, f"{end['detail']}{of}"
