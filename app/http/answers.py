"""Domain values as JSON: the way out."""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.alterations import AlterationResult, KafkaRefusal, Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import LONG_MAX, TWO_TO_63

JsonNumber = int | float | str

_TYPES: Final = tuple(str(kind) for kind in ENTITY_TYPES)

_NOT_NUMBERS: Final[Mapping[str, str]] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def quota_value_json(value: float) -> JsonNumber:
    """Return a stored value for JSON.

    Integral values have no fraction; 2^63 is 9223372036854775807; beyond it a float is written,
    because no 64-bit integer holds it; NaN and infinity are strings.
    """
    if value == TWO_TO_63:
        return LONG_MAX
    if abs(value) < TWO_TO_63:
        return int(value) if value.is_integer() else value
    return _NOT_NUMBERS.get(str(value), value)


def values_json(values: Values) -> dict[str, JsonNumber]:
    """Return the values of one entity, sorted by key."""
    return {str(key): quota_value_json(float(values[key])) for key in sorted(values)}


def entity_json(entity: ClientQuotaEntity) -> dict[str, str | None]:
    """Return an entity as type to name, user first; null is the default."""
    names = entity.as_dict()
    return {**{kind: names[kind] for kind in _TYPES if kind in names}, **names}


def quota_json(entity: ClientQuotaEntity, values: Values) -> dict[str, Any]:
    """Return one element of ``quotas``."""
    return {
        "entity": entity_json(entity),
        "entity_key": entity.key,
        "values": values_json(values),
    }


def refusal_json(refusal: KafkaRefusal | None) -> dict[str, str | None] | None:
    """Return why an entity was refused, or null."""
    if refusal is None:
        return None
    return {"kafka_error": refusal.kafka_error, "message": refusal.message}


def alteration_result_json(result: AlterationResult) -> dict[str, Any]:
    """Return what became of one entity; ``warnings`` is there only where there are some."""
    document: dict[str, Any] = {
        "entity": entity_json(result.entity),
        "outcome": result.outcome.value,
        "changed": result.changed,
        "before": _values_or_null(result.before),
        "after": _values_or_null(result.after),
        "error": refusal_json(result.error),
    }
    if result.warnings:
        document["warnings"] = list(result.warnings)
    return document


def _values_or_null(values: Values | None) -> dict[str, JsonNumber] | None:
    return None if values is None else values_json(values)
