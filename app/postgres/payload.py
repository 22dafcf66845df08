"""Domain values as canonical JSON, and back; the events of the log, which are made of it.

An event is one row of the log, with a record of what concerns the request; a row for each entity
has what it is found by, and a document of what the event says of it. ``audit_log`` reads events.
"""

import hashlib
import json
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import orjson

from app.domain.alterations import (
    AlterationResult,
    Op,
    Outcome,
    Values,
)
from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, Caller, ClientQuotaEntity
from app.service.ports.alterations import Alteration, Change, Conclusion
from app.service.ports.audit_log import Recovered, RecoveryKey
from app.service.runtime.clock import time_of

Document = dict[str, Any]

MESSAGE_LENGTH: Final = 1000
"""A broker's message is stored up to this length, in characters."""

_DIGITS_OF_AN_INTEGER: Final = 21
_INTEGERS_BELOW: Final = 10**_DIGITS_OF_AN_INTEGER
_ID_VERSION: Final = 7
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def canonical_bytes(document: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Return sorted keys, no blanks; U+0000 and lone surrogates are escaped, the rest is not.

    Numbers that JSON lacks must be text already: see ``number_to_json``.

    Source: RFC 8785, but for keys beyond the basic plane, which are sorted by code point, and for
    exponents, which have no plus sign.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        text = json.dumps(
            document, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text).encode()


def canonical_json(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return ``canonical_bytes`` as text."""
    return canonical_bytes(document).decode()


def is_record_id(text: str) -> bool:
    """Tell whether a text is the id of an alteration or a plan: a UUIDv7, canonically written."""
    try:
        parsed = UUID(text)
        time_of(text)
    except ValueError:
        return False
    return parsed.version == _ID_VERSION and str(parsed) == text


def number_to_json(value: float) -> int | float | str:
    """Return an integral value as an integer; NaN and infinity, which JSON lacks, as text."""
    number = float(value)
    if number.is_integer() and abs(number) < _INTEGERS_BELOW:
        is_negative_zero = not number and math.copysign(1, number) < 0
        return number if is_negative_zero else int(number)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


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


def _decimal_to_json(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value)
    is_short = value.adjusted() < _DIGITS_OF_AN_INTEGER
    if is_short and value == value.to_integral_value() and (value or not value.is_signed()):
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


_NO_TYPES: Final = {**{kind: ABSENT for kind, _ in _COLUMNS.values()}, "other_types": False}


def name_bytes(name: str) -> bytes:
    """Return a name as it is stored: Postgres text cannot hold U+0000, bytes can."""
    return name.encode("utf-8", "surrogatepass")


def bytes_text(content: bytes) -> str:
    """Return bytes as Postgres reads them from text."""
    return "\\x" + content.hex()


def entity_columns(entity: ClientQuotaEntity) -> Document:
    """Return the columns that an entity is found by."""
    columns: Document = {**_NO_TYPES}
    for kind, name in entity.entries:
        if kind not in _COLUMNS:
            columns["other_types"] = True
            continue
        of_kind, of_name = _COLUMNS[kind]
        columns[of_kind] = DEFAULT if name is DEFAULT_NAME else NAME
        if name is not DEFAULT_NAME:
            columns[of_name] = bytes_text(name_bytes(name))
    return columns


SCHEMA: Final = 3
"""The layout of the records; each record names it. From 3 on an intent has no values."""

_NO_ENTITY: Final = ClientQuotaEntity(())

_FINAL_EVENTS: Final[Mapping[str, str]] = {"denied": "denied", "drift": "drift"}
"""The first event of a request that is over at once, by action; ``validated`` for any other."""

_SEEN: Final = frozenset({Outcome.APPLIED.value, Outcome.OBSERVED_OTHER.value})
"""Outcomes whose ``after`` is what the cluster holds now."""

_REMARKS: Final[Mapping[str, tuple[str, bool]]] = {
    "indistinguishable": ("indistinguishable", True),
    "unverified": ("verified", False),
}
"""What a reader sees of the evidence: word, and the member that gives rise to it."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it is to be written.

    Attributes:
        columns: Of the log and of locks; with a ``cluster_id`` it is the first of its alteration.
        record: What concerns the alteration.
        entities: By ordinal the document of an entity, and the columns it is found by. ``values``
            are the state that the entity has if the event frees its lock.
        rejected: Documents of entities that our own rules refused; they have no rows.
    """

    columns: Document
    record: Document
    entities: Mapping[int, tuple[str, Document]]
    rejected: Sequence[Document] = ()

    def without(self, refused: Container[RecoveryKey]) -> "Event | None":
        """Return the event without these entities; null where that leaves nothing to say."""
        alteration_id = self.columns["alteration_id"]
        left = {n: row for n, row in self.entities.items() if (alteration_id, n) not in refused}
        is_start = "cluster_id" in self.columns
        return replace(self, entities=left) if left or is_start else None


def encoded_events(events: Sequence[Event]) -> dict[str, str]:
    """Return events as parameters of the database's functions: the rows of both tables."""
    rows: list[Document] = []
    found_by: list[Document] = []
    for n, event in enumerate(events, 1):
        documents = [document for document, _ in event.entities.values()]
        columns = {**event.columns, "n": n, "record": canonical_json(event.record)}
        if event.rejected:
            columns["rejected"] = canonical_json(event.rejected)
            documents.append(columns["rejected"])
        hashed = hashlib.sha256(",".join(documents).encode()).digest()
        rows.append({**columns, "documents_hash": bytes_text(hashed)})
        for ordinal, (document, columns) in event.entities.items():
            found_by.append({**columns, "n": n, "ordinal": ordinal, "document": document})
    return {"events": canonical_json(rows), "entities": canonical_json(found_by)}


def start_event(
    alteration: Alteration, results: Mapping[int, AlterationResult] | None = None
) -> Event:
    """Return the first event of an alteration.

    Args:
        alteration: What was asked for.
        results: Of one that is over at once: denied, judged only, or not ours. Null for one
            that is about to be sent.
    """
    kind = "intent" if results is None else _FINAL_EVENTS.get(alteration.action, "validated")
    entities = {}
    for change in alteration.changes if results is None else alteration.changes or (None,):
        ordinal = 0 if change is None else change.ordinal
        columns: Document = {}
        document: Document = {"ordinal": 0, "entity": None, "ops": None, "before": None}
        if change is not None:
            columns = entity_columns(change.entity)
            document = {
                "ordinal": ordinal,
                "entity": change.entity.as_dict(),
                "ops": [op_to_json(op) for op in change.ops],
                "before": values_to_json(change.before),
                "warnings": list(change.warnings),
            }
        if results is not None:
            result = results.get(ordinal) or _missing_result(kind, change)
            document["result"] = result_to_json(result)
            columns |= _verdict(document["result"])
        entities[ordinal] = canonical_json(document), columns
    names = {
        "cluster_id": alteration.cluster_id,
        "principal": alteration.caller.principal,
        "action": alteration.action,
    }
    details = {
        "client_address": alteration.caller.host,
        "authentication": alteration.caller.authentication,
        "request_id": alteration.request_id,
        "reason": alteration.reason,
        "decision": dict(alteration.evidence),
        "options": alteration.options,
        "broker_id": alteration.broker_id,
    }
    event = _event(alteration.alteration_id, kind, entities, **names, **details)
    lock = {"owner": alteration.owner, "broker_id": alteration.broker_id}
    columns = {**event.columns, **names, **lock}
    return replace(event, columns=columns, rejected=_rejected(alteration.local_refusals))


def _rejected(results: Mapping[int, AlterationResult]) -> list[Document]:
    return [
        {"ordinal": ordinal, "entity": result.entity.as_dict(), "result": result_to_json(result)}
        for ordinal, result in results.items()
    ]


def outcome_event(conclusion: Conclusion) -> Event:
    """Return the event of all results, and of the sending."""
    entities = {}
    for n, result in sorted(conclusion.results.items()):
        document = result_to_json(result)
        entities[n] = canonical_json({"ordinal": n, "result": document}), _verdict(document)
    event = _event(
        conclusion.alteration_id,
        "outcome",
        entities,
        events=[[time.isoformat(), event, detail] for time, event, detail in conclusion.events],
    )
    return replace(event, rejected=_rejected(conclusion.rejected))


def recovery_events(found: Iterable[Recovered]) -> Iterator[Event]:
    """Return what recovery found, an event for each alteration; only what is final has a verdict.

    Args:
        found: Of entities that differ.
    """
    by_key = sorted(found, key=attrgetter("key"))
    for alteration_id, group in groupby(by_key, key=attrgetter("alteration_id")):
        entities = {}
        for finding in group:
            result = result_to_json(finding.result)
            document = {
                "ordinal": finding.ordinal,
                "final": finding.final,
                "result": result,
                "evidence": dict(finding.evidence),
                "detail": _finding(finding),
            }
            verdict = _verdict(result) if finding.final else {}
            entities[finding.ordinal] = canonical_json(document), verdict
        yield _event(alteration_id, "recovery", entities)


def superseded_event(alteration_id: str, ordinals: Iterable[int], by: str) -> Event:
    """Return the end of entities that another alteration took over; what became of it is open."""
    result = result_to_json(AlterationResult(_NO_ENTITY, Outcome.SUPERSEDED))
    document = {
        "result": result,
        "superseded_by": by,
        "detail": f"superseded by alteration {by} before it had an outcome",
    }
    verdict = _verdict(result)
    entities = {n: (canonical_json({"ordinal": n, **document}), verdict) for n in sorted(ordinals)}
    return _event(alteration_id, "superseded", entities)


def expiry_event(
    alteration_id: str, caller: Caller, request_id: str, expires_at: datetime | None
) -> Event:
    """Return that what an alteration set ends at another time, or never; see ``records``."""
    end = (
        "is for good"
        if expires_at is None
        else f"ends at {expires_at.isoformat(timespec='seconds')}"
    )
    now = datetime.now(UTC).isoformat()
    return _event(
        alteration_id,
        "expiry",
        {},
        principal=caller.principal,
        client_address=caller.host,
        authentication=caller.authentication,
        request_id=request_id,
        expires_at=None if expires_at is None else expires_at.isoformat(),
        events=[[now, "expiry", f"{end}, says {caller.principal}"]],
    )


def late_event(alteration_id: str, ordinal: int, drift_id: str) -> Event:
    """Return a note that the alteration was seen to be applied after all."""
    detail = f"seen to be applied after all, recorded as {drift_id}"
    document = {"ordinal": ordinal, "drift": drift_id, "detail": detail}
    return _event(alteration_id, "drift", {ordinal: (canonical_json(document), {})})


def _event(
    alteration_id: str, kind: str, entities: Mapping[int, tuple[str, Document]], **details: Any
) -> Event:
    columns = {
        "received_at": time_of(alteration_id).isoformat(),
        "alteration_id": alteration_id,
        "event_type": kind,
    }
    names = {"schema": SCHEMA, "alteration_id": alteration_id, "event": kind}
    return Event(columns, {**names, **details}, entities)


def _verdict(result: Document) -> Document:
    columns = {"verdict": result["outcome"]}
    if result["outcome"] in _SEEN and result["after"] is not None:
        columns["values"] = canonical_json(result["after"])
    return columns


def _missing_result(kind: str, change: Change | None) -> AlterationResult:
    outcome = Outcome.REFUSED if kind == "denied" else Outcome.UNKNOWN
    return AlterationResult(change.entity if change else _NO_ENTITY, outcome)


def _finding(recovered: Recovered) -> str:
    """Say what was seen. Kafka shows no history: what was put back looks as if never applied."""
    outcome, evidence = recovered.result.outcome.value.replace("_", " "), recovered.evidence
    if "late_answer" in evidence:
        return f"answered late: {outcome}"
    remarks = [word for word, (name, value) in _REMARKS.items() if evidence.get(name) is value]
    if recovered.final and recovered.result.outcome is Outcome.NOT_APPLIED:
        remarks.append("another tool may have put back what held before")
    found = f"observed: {outcome}" if recovered.final else f"observed: {outcome} so far"
    return f"{found} ({', '.join(remarks)})" if remarks else found
