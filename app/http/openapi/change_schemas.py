"""Schemas of what may be asked to change: entities and operations, as exact as a schema can be.

What depends on the stored state stays in words: an alteration that only removes may name an entity
or a key as the broker lists it, whatever these schemas say.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from app.domain.entities import EntityType
from app.domain.quota_keys import (
    IP_TYPES,
    JAVASCRIPT_TWO_TO_63,
    LONG_MAX,
    QUOTA_KEY_RULES,
    TWO_TO_63,
    USER_CLIENT_TYPES,
    QuotaKey,
    keys_for,
)
from app.domain.validation import MAX_NAME_BYTES
from app.http.openapi.shapes import Schema, array, closed, nullable, ref

_EXACT_BITS: Final = 53
"""Up to 2^53 float64 holds every integer; from there on every second, fourth, eighth one."""

_LONG_BITS: Final = 63

_NAME: Final[Schema] = {
    "type": ["string", "null"],
    "minLength": 1,
    "maxLength": MAX_NAME_BYTES,
    "pattern": r"^[^\u0000]*$",
    "description": f"At most {MAX_NAME_BYTES} bytes of UTF-8; null names the default entity.",
}


def _exact_integers() -> Schema:
    """Return the integers from 1 to 2^63 that float64 holds, and other spellings of 2^63."""
    wider = [
        {"minimum": 2**bits, "maximum": 2 ** (bits + 1), "multipleOf": 2 ** (bits - 52)}
        for bits in range(_EXACT_BITS, _LONG_BITS)
    ]
    return {
        "type": "integer",
        "description": (
            "A whole number that float64 holds exactly; 9223372036854775807 means 2^63, "
            "and so does 9223372036854776000, which JavaScript writes for it."
        ),
        "anyOf": [
            {"minimum": 1, "maximum": 2**_EXACT_BITS},
            *wider,
            {"enum": [LONG_MAX, JAVASCRIPT_TWO_TO_63]},
        ],
    }


def _value(key: QuotaKey) -> Schema:
    rule = QUOTA_KEY_RULES[key]
    if rule.maximum == TWO_TO_63:
        return ref("ByteRate")
    if rule.integral:
        return {"type": "integer", "minimum": int(rule.minimum), "maximum": int(rule.maximum)}
    return {"type": "number", "minimum": rule.minimum, "maximum": int(rule.maximum)}


def _set(key: QuotaKey) -> Schema:
    members: dict[str, Schema] = {
        "key": {"const": key.value},
        "value": _value(key),
        "remove": {"const": False},
    }
    unit = QUOTA_KEY_RULES[key].unit
    schema = closed(members, optional=("remove",), description=f"Set {key}, in {unit}.")
    return {"title": f"Set {key}", **schema}


def _operation(keys: Sequence[QuotaKey]) -> Schema:
    members: dict[str, Schema] = {
        "key": {"enum": [key.value for key in keys]},
        "remove": {"const": True},
    }
    remove = {"title": "Remove", **closed(members, description="Remove a key.")}
    return {"oneOf": [*(_set(key) for key in keys), remove]}


def _operations(name: str, keys: Sequence[QuotaKey]) -> Schema:
    """Return a list in which each key occurs at most once."""
    once = [
        {
            "contains": {"required": ["key"], "properties": {"key": {"const": key.value}}},
            "minContains": 0,
            "maxContains": 1,
        }
        for key in keys
    ]
    return {
        **array(ref(name), "Each key at most once.", minItems=1, maxItems=len(keys)),
        "allOf": once,
    }


_CLIENT_KEYS: Final = keys_for(frozenset(kind.value for kind in USER_CLIENT_TYPES))
_IP_KEYS: Final = keys_for(frozenset(kind.value for kind in IP_TYPES))


def _alteration(entity: str, operations: str) -> Schema:
    members = {"entity": ref(entity), "ops": ref(operations), "expected": ref("ExpectedValues")}
    return closed(members, optional=("expected",))


CHANGE_SCHEMAS: Final[Mapping[str, Schema]] = {
    "ByteRate": _exact_integers(),
    "UserClientEntity": {
        **closed(
            {EntityType.USER.value: _NAME, EntityType.CLIENT_ID.value: _NAME},
            optional=(EntityType.USER, EntityType.CLIENT_ID),
            description="A user, a client-id, or both.",
        ),
        "minProperties": 1,
    },
    "IpEntity": closed(
        {EntityType.IP.value: nullable(ref("IpAddress"), "Null names the default entity.")},
        description="An address; it is stored in its canonical text.",
    ),
    "UserClientOp": _operation(_CLIENT_KEYS),
    "UserClientOps": _operations("UserClientOp", _CLIENT_KEYS),
    "IpOp": _operation(_IP_KEYS),
    "IpOps": _operations("IpOp", _IP_KEYS),
    "ExpectedValues": {
        "type": "object",
        "description": "The values that must hold now, by key; null: the key is not set.",
        "additionalProperties": nullable(ref("StoredValue")),
    },
    "ClientQuotaAlteration": {
        "description": (
            "The operations on one entity. One that only removes may name entity and keys as the "
            "broker lists them, even where that breaks this schema."
        ),
        "oneOf": [
            _alteration("UserClientEntity", "UserClientOps"),
            _alteration("IpEntity", "IpOps"),
        ],
    },
}
