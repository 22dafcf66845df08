"""Domain values as canonical JSON, and back."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import orjson

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Op,
    Outcome,
    Values,
)
from app.domain.entities import ClientQuotaEntity
from app.service.ports.audit_log import AuditEntity
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


def audit_entity_from_json(document: Document) -> AuditEntity:
    """Return one entity of a request, from its document in the first event."""
    return AuditEntity(
        document["ordinal"],
        ClientQuotaAlteration(
            ClientQuotaEntity.of(document["entity"]), tuple(map(op_from_json, document["ops"]))
        ),
        values_from_json(document["before"]),
        tuple(document["warnings"]),
    )


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
