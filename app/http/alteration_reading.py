"""Alterations, from JSON to domain values."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from app.domain.alterations import ClientQuotaAlteration, Op
from app.http.entity_reading import read_entity
from app.http.json_pointer import child
from app.http.reading import ObjectReader, Reading
from app.http.strict_json import JsonValue

Expected = Mapping[str, Decimal | float | None]
"""Values that must hold now, as written; null: not set; NaN and infinity are floats."""

_ALTERATION_FIELDS: Final = frozenset({"entity", "ops", "expected"})
_OP_FIELDS: Final = frozenset({"key", "value", "remove"})

_NOT_NUMBERS: Final[Mapping[str, float]] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
}

Proposal = tuple[ClientQuotaAlteration, Expected | None]


def read_alterations(reader: ObjectReader) -> list[Proposal]:
    """Read the member ``alterations``; a missing one is an empty list."""
    proposals = []
    for pointer, item in reader.items("alterations"):
        alteration = ObjectReader.of(item, pointer, _ALTERATION_FIELDS, reader.reading)
        if alteration is not None:
            proposals.append(_read_alteration(alteration))
    return proposals


def _read_alteration(reader: ObjectReader) -> Proposal:
    reader.need("entity", "ops")
    entity = read_entity(reader)
    ops = tuple(_read_op(item, pointer, reader.reading) for pointer, item in reader.items("ops"))
    return ClientQuotaAlteration(entity, ops), _read_expected(reader)


def _read_op(value: JsonValue, pointer: str, reading: Reading) -> Op:
    reader = ObjectReader.of(value, pointer, _OP_FIELDS, reading)
    if reader is None:
        return Op("")
    reader.need("key")
    return Op(
        key=reader.text("key") or "",
        value=reader.number("value"),
        remove=reader.flag("remove", default=False),
    )


def _read_expected(reader: ObjectReader) -> Expected | None:
    members = reader.object("expected")
    if members is None:
        return None
    expected: dict[str, Decimal | float | None] = {}
    for key, value in members.items():
        if value is None or (isinstance(value, Decimal)):
            expected[key] = value
        elif isinstance(value, str) and value in _NOT_NUMBERS:
            expected[key] = _NOT_NUMBERS[value]
        else:
            pointer = child(child(reader.pointer, "expected"), key)
            reader.reading.wrong_type(pointer, _EXPECTED_KIND, value)
    return expected


_EXPECTED_KIND: Final = 'a number, "NaN", "Infinity", or null for a key that is not set'
