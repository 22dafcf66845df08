"""Domain values as rows of the log, in canonical JSON: what is hashed is what is stored.

A row whose times the database fills in carries a mark in their stead that nobody can guess, so that
no text of a caller is one.
"""

import hashlib
import json
import math
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

import orjson

from app.domain.alterations import AlterationResult, KafkaRefusal, Op, Outcome, Values
from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity
from app.postgres.schema import REQUEST_ORDINAL
from app.service.ports.audit_log import AuditConclusion, AuditEntity, AuditRequest
from app.service.runtime.clock import time_of

Document = dict[str, Any]

MESSAGE_LENGTH: Final = 1000
"""A broker's message is stored up to this length, in characters."""

_DIGITS_OF_AN_INTEGER: Final = 21
_LEAF: Final = b"\x00"
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


def leaf_hash(payload: str) -> bytes:
    """Return SHA-256 of a zero byte and the payload in UTF-8. Source: RFC 6962, section 2.1."""
    return hashlib.sha256(_LEAF + payload.encode()).digest()


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
    """Return the values of an entity, or null where they are not known."""
    if values is None:
        return None
    return {key: number_to_json(value) for key, value in values.items()}


def values_from_json(document: Mapping[str, Any] | None) -> Values | None:
    """Return the very float64 values that were written."""
    if document is None:
        return None
    return {key: float(value) for key, value in document.items()}


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
            columns[of_name] = name_bytes(name)
    return columns


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


_BYTES: Final = ("user_name", "client_id_name", "ip_name")


def new_mark() -> str:
    """Return a mark for one time in the rows of one transaction."""
    return secrets.token_hex(16)


def open_rows(rows: Iterable[EventRow]) -> str:
    """Return rows whose times are marks as JSON; names are hexadecimal, seals are left out."""
    return canonical_json([_members(row) for row in rows])


def _members(row: EventRow) -> dict[str, Any]:
    members = {name: value for name, value in row._asdict().items() if value is not None}
    for name in ("leaf_hash", "at", "occurred_at"):
        del members[name]
    for name in _BYTES:
        if name in members:
            members[name] = members[name].hex()
    return members
