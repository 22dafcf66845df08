"""The schema of an alteration, as exact as one can be.

What depends on the stored state stays in words: an alteration that only removes may name an entity
or a key as the broker lists it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
from app.http.models import IP_SCHEMA

Schema = dict[str, Any]

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

_BYTE_RATE: Final[Schema] = {
    "type": "integer",
    "description": (
        "A whole number that float64 holds exactly; 9223372036854775807 means 2^63, and so does "
        "9223372036854776000, which JavaScript writes for it."
    ),
    "anyOf": [
        {"type": "integer", **bounds}
        for bounds in (
            {"minimum": 1, "maximum": 2**_EXACT_BITS},
            *(
                {"minimum": 2**bits, "maximum": 2 ** (bits + 1), "multipleOf": 2 ** (bits - 52)}
                for bits in range(_EXACT_BITS, _LONG_BITS)
            ),
            {"enum": [LONG_MAX, JAVASCRIPT_TWO_TO_63]},
        )
    ],
}


def object_schema(required: Sequence[str], properties: Mapping[str, Any], **more: Any) -> Schema:
    """Return the schema of an object without other members."""
    return {
        "type": "object",
        "required": list(required),
        "properties": dict(properties),
        "additionalProperties": False,
        **more,
    }


def _value(key: QuotaKey) -> Schema:
    rule = QUOTA_KEY_RULES[key]
    if rule.maximum == TWO_TO_63:
        return _BYTE_RATE
    kind, minimum = ("integer", int(rule.minimum)) if rule.integral else ("number", rule.minimum)
    return {"type": kind, "minimum": minimum, "maximum": int(rule.maximum)}


def _set(key: QuotaKey) -> Schema:
    members = {"key": {"const": key.value}, "value": _value(key), "remove": {"const": False}}
    description = f"Set {key}, in {QUOTA_KEY_RULES[key].unit}."
    return object_schema(["key", "value"], members, title=f"Set {key}", description=description)


def _ops(types: str, keys: Sequence[QuotaKey]) -> Schema:
    """Return a list in which each key occurs at most once; ``types`` is in its schemas' names."""
    remove = {"key": {"enum": [key.value for key in keys]}, "remove": {"const": True}}
    return {
        "type": "array",
        "description": "Each key at most once.",
        "minItems": 1,
        "maxItems": len(keys),
        "items": {
            "oneOf": [
                *(_set(key) for key in keys),
                object_schema(list(remove), remove, title=f"Remove{types}Key"),
            ]
        },
        "allOf": [
            {
                "contains": {"required": ["key"], "properties": {"key": {"const": key.value}}},
                "minContains": 0,
                "maxContains": 1,
            }
            for key in keys
        ],
    }


_EXPECTED_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "The values that must hold now, by key; null: the key is not set.",
    "additionalProperties": {
        "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity"]}, {"type": "null"}]
    },
}


def _alteration_of(types: str, entity: Schema, keys: Sequence[QuotaKey]) -> Schema:
    members = {"entity": entity, "ops": _ops(types, keys), "expected": _EXPECTED_SCHEMA}
    return object_schema(["entity", "ops"], members, title=f"{types}Alteration")


_USER_CLIENT_ENTITY: Final = object_schema(
    (),
    {EntityType.USER.value: _NAME, EntityType.CLIENT_ID.value: _NAME},
    title="UserClientEntity",
    description="A user, a client-id, or both.",
    minProperties=1,
)
_IP_ENTITY: Final = object_schema(
    [EntityType.IP.value],
    {
        EntityType.IP.value: {
            "anyOf": [IP_SCHEMA, {"type": "null"}],
            "description": "Null names the default entity.",
        }
    },
    title="IpEntity",
    description="An address; it is stored in its canonical text.",
)

ALTERATION_SCHEMA: Final[Schema] = {
    "description": (
        "The operations on one entity. One that only removes may name entity and keys as the "
        "broker lists them, even where that breaks this schema."
    ),
    "oneOf": [
        _alteration_of("UserClient", _USER_CLIENT_ENTITY, keys_for(USER_CLIENT_TYPES)),
        _alteration_of("Ip", _IP_ENTITY, keys_for(IP_TYPES)),
    ],
}
