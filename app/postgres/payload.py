"""Domain values as events of the log, and back: columns to find them by, the record as JSON.

The database puts the times of an event in front of its record, and hashes both as they are stored.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import orjson

from app.domain.alterations import AlterationResult, KafkaRefusal, Op, Outcome, Values
from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity
from app.postgres.schema import REQUEST_ORDINAL
from app.service.ports.audit_log import AuditConclusion, AuditEntity, AuditRequest
from app.service.ports.recovery import Recovered
from app.service.runtime.clock import time_of

Document = dict[str, Any]

MESSAGE_LENGTH: Final = 1000
"""A broker's message is stored up to this length, in characters."""

_DIGITS_OF_AN_INTEGER: Final = 21
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def canonical_json(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return sorted keys, no blanks; U+0000 and lone surrogates are escaped, the rest is not.

    Numbers that JSON lacks must be text already: see ``number_to_json``.

    Source: RFC 8785, but for keys beyond the basic plane, which are sorted by code point, and for
    exponents, which have no plus sign.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        text = json.dumps(
            document, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def number_to_json(value: float) -> int | float | str:
    """Return an integral value as an integer; NaN and infinity, which JSON lacks, as text."""
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    is_negative_zero = number == 0 and math.copysign(1, number) < 0
    if is_negative_zero or not number.is_integer() or abs(number) >= 10**_DIGITS_OF_AN_INTEGER:
        return number
    return int(number)


def values_to_json(values: Values | None) -> Document | None:
    """Return the values of an entity, or null where nobody has read them."""
    if values is None:
        return None
    return {key: number_to_json(value) for key, value in values.items()}


def values_from_json(document: Mapping[str, Any] | None) -> Values | None:
    """Return the very float64 values that were written."""
    if document is None:
        return None
    return {key: float(value) for key, value in document.items()}


def entity_text(entity: ClientQuotaEntity) -> str:
    """Return an entity as canonical JSON that Postgres can store, whatever its names hold."""
    return canonical_json(entity.as_dict())


def values_text(values: Values) -> str:
    """Return an entity's values as canonical JSON."""
    return canonical_json(values_to_json(values) or {})


def values_from_text(stored: str) -> Values:
    """Return the values that were stored."""
    return values_from_json(json.loads(stored)) or {}


def op_to_json(op: Op) -> Document:
    """Return an operation as proposed; a value that no JSON number equals is written as text."""
    document: Document = {"key": op.key}
    if op.value is not None:
        document["value"] = _decimal_to_json(op.value)
    if op.remove:
        document["remove"] = True
    return document


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


def result_to_json(result: AlterationResult) -> Document:
    """Return what became of an entity, without the entity."""
    error = result.error
    return {
        "outcome": result.outcome.value,
        "changed": result.changed,
        "before": values_to_json(result.before),
        "after": values_to_json(result.after),
        "error": error
        and {"kafka_error": error.kafka_error, "message": error.message[:MESSAGE_LENGTH]},
        "warnings": list(result.warnings),
    }


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


def ops_from_json(documents: Sequence[Mapping[str, Any]]) -> tuple[Op, ...]:
    """Return the operations of an entity, in order."""
    return tuple(op_from_json(document) for document in documents)


def _decimal_to_json(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value)
    is_negative_zero = value.is_zero() and value.is_signed()
    is_short = value.adjusted() < _DIGITS_OF_AN_INTEGER
    if is_short and not is_negative_zero and value == value.to_integral_value():
        return int(value)
    number = float(value)
    if math.isfinite(number) and Decimal(repr(number)) == value:
        return number
    return str(value)


ABSENT: Final = "absent"
DEFAULT: Final = "default"
NAME: Final = "name"

_COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    str(kind): (f"{column}_kind", f"{column}_name")
    for kind in ENTITY_TYPES
    for column in (str(kind).replace("-", "_"),)
}
"""The two columns of each entity type."""

_NO_TYPES: Final[Mapping[str, Any]] = {
    "other_types": False,
    **{of_kind: ABSENT for of_kind, _ in _COLUMNS.values()},
}


def name_bytes(name: str) -> bytes:
    """Return a name as it is stored: Postgres text cannot hold U+0000, bytes can."""
    return name.encode("utf-8", "surrogatepass")


def bytes_text(content: bytes) -> str:
    """Return bytes as Postgres reads them from text."""
    return "\\x" + content.hex()


def entity_columns(entity: ClientQuotaEntity) -> dict[str, Any]:
    """Return the columns that an entity is found by."""
    columns: dict[str, Any] = {**_NO_TYPES}
    for kind, name in entity.entries:
        if kind not in _COLUMNS:
            columns["other_types"] = True
            continue
        of_kind, of_name = _COLUMNS[kind]
        columns[of_kind] = DEFAULT if name is DEFAULT_NAME else NAME
        if name is not DEFAULT_NAME:
            columns[of_name] = bytes_text(name_bytes(name))
    return columns


SCHEMA: Final = 1
"""The layout of the records; each record names it."""

RECOVERY: Final = "recovery"
SUPERSEDED: Final = "superseded"
DRIFT: Final = "drift"

_NO_ENTITY: Final = ClientQuotaEntity(())

_FINAL_EVENTS: Final[Mapping[str, str]] = {"denied": "denied", DRIFT: DRIFT}
"""The first event of a request that is over at once, by action; ``validated`` for any other."""

_SEEN: Final = frozenset({Outcome.APPLIED, Outcome.OBSERVED_OTHER})
"""Outcomes whose ``after`` is what the cluster holds now."""

_REMARKS: Final[Mapping[str, tuple[str, bool]]] = {
    "indistinguishable": ("indistinguishable", True),
    "unverified": ("verified", False),
}
"""What a reader sees of the evidence: word, and the member that gives rise to it."""

Event = Document
"""An event as ``append_events`` takes it: its columns, and ``record`` without the times. An event
with a ``cluster_id`` is the first of its entity. ``entity`` and ``values`` are the state that the
entity has if the event frees its lock."""


def start_events(
    request: AuditRequest, results: Mapping[int, AlterationResult] | None = None
) -> Iterator[Event]:
    """Return the first events of a request.

    Args:
        request: What was asked for.
        results: Of a request that is over at once: denied, judged only, or not ours. Null for one
            that is about to be sent.
    """
    event = "intent" if results is None else _FINAL_EVENTS.get(request.action, "validated")
    columns = {
        **_common(request.alteration_id, event),
        "cluster_id": request.cluster_id,
        "principal": request.caller.principal,
        "action": request.action,
    }
    yield _event(columns, REQUEST_ORDINAL, _request_record(request))
    entities = request.entities if results is None else request.entities or (None,)
    for entity in entities:
        ordinal = 0 if entity is None else entity.ordinal
        own: Event = {}
        document: Document = {"entity": None, "ops": None, "before": None, "warnings": []}
        if entity is not None:
            own = entity_columns(entity.alteration.entity)
            document = _entity_record(entity)
        if results is not None:
            result = results.get(ordinal) or _missing_result(event, entity)
            document["result"] = result_to_json(result)
            own |= _verdict(result)
        yield _event({**columns, **own}, ordinal, document)
    columns["event_type"] = "rejected"
    for ordinal, result in request.local_refusals.items():
        document = {"entity": result.entity.as_dict(), "result": result_to_json(result)}
        yield _event({**columns, **_verdict(result)}, ordinal, document)


def outcome_events(conclusion: AuditConclusion) -> Iterator[Event]:
    """Return an event for each result; the first one carries the events of the sending."""
    columns = _common(conclusion.alteration_id, "outcome")
    events = [[time.isoformat(), event, detail] for time, event, detail in conclusion.events]
    for ordinal, result in sorted(conclusion.results.items()):
        document = {"result": result_to_json(result), "events": events}
        yield _event({**columns, **_verdict(result)}, ordinal, document)
        events = []


def recovery_event(recovered: Recovered) -> Event:
    """Return what recovery found; only what is final has a verdict."""
    columns = _common(recovered.alteration_id, RECOVERY)
    document = {
        "final": recovered.final,
        "result": result_to_json(recovered.result),
        "evidence": dict(recovered.evidence),
        "detail": _finding(recovered),
    }
    verdict = _verdict(recovered.result) if recovered.final else {}
    return _event({**columns, **verdict}, recovered.ordinal, document)


def superseded_event(alteration_id: str, ordinal: int, by: str) -> Event:
    """Return the end of an entity that another alteration took over; what became of it is open."""
    result = AlterationResult(_NO_ENTITY, Outcome.SUPERSEDED)
    document = {
        "result": result_to_json(result),
        "superseded_by": by,
        "detail": f"superseded by alteration {by} before its outcome was known",
    }
    columns = _common(alteration_id, SUPERSEDED)
    return _event({**columns, **_verdict(result)}, ordinal, document)


def late_event(alteration_id: str, ordinal: int, drift_id: str) -> Event:
    """Return a note that the alteration was seen to be applied after all."""
    detail = f"seen to be applied after all, recorded as {drift_id}"
    columns = _common(alteration_id, DRIFT)
    return _event(columns, ordinal, {"drift": drift_id, "detail": detail})


def _common(alteration_id: str, event: str) -> Event:
    return {
        "received_at": time_of(alteration_id).isoformat(),
        "alteration_id": alteration_id,
        "event_type": event,
    }


def _event(columns: Event, ordinal: int, document: Document) -> Event:
    record = {
        "schema": SCHEMA,
        "alteration_id": columns["alteration_id"],
        "event": columns["event_type"],
        "ordinal": ordinal,
        **document,
    }
    return {**columns, "ordinal": ordinal, "record": canonical_json(record)}


def _verdict(result: AlterationResult) -> Event:
    columns = {"verdict": result.outcome.value}
    if result.outcome in _SEEN and result.after is not None:
        columns["entity"] = entity_text(result.entity)
        columns["values"] = values_text(result.after)
    return columns


def _request_record(request: AuditRequest) -> Document:
    return {
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


def _entity_record(entity: AuditEntity) -> Document:
    return {
        "entity": entity.alteration.entity.as_dict(),
        "ops": [op_to_json(op) for op in entity.alteration.ops],
        "before": values_to_json(entity.before),
        "warnings": list(entity.warnings),
    }


def _missing_result(event: str, entity: AuditEntity | None) -> AlterationResult:
    outcome = Outcome.REFUSED if event == "denied" else Outcome.UNKNOWN
    return AlterationResult(entity.alteration.entity if entity else _NO_ENTITY, outcome)


def _finding(recovered: Recovered) -> str:
    outcome = recovered.result.outcome.value.replace("_", " ")
    remarks = [
        word for word, (name, value) in _REMARKS.items() if recovered.evidence.get(name) is value
    ]
    found = f"found {outcome}" if recovered.final else f"observed: {outcome} so far"
    return f"{found} ({', '.join(remarks)})" if remarks else found
