"""Alterations, from JSON to domain values."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.errors import InvalidRequestError, Violation
from app.http.entity_reading import read_entity
from app.http.json_pointer import child
from app.http.reading import ListLimit, ObjectReader, Reading
from app.http.strict_json import JsonValue

Expected = Mapping[str, Decimal | float | None]
"""Values that must hold now, as written; null: not set; NaN and infinity are floats."""

_ALTERATION_FIELDS: Final = frozenset({"entity", "ops", "expected"})
_OP_FIELDS: Final = frozenset({"key", "value", "remove"})

_TOO_MANY: Final = "too-many-changes"
_CONTROLLER_ERROR: Final = "POLICY_VIOLATION"

ENTITIES: Final = ListLimit(10_000, _TOO_MANY, _CONTROLLER_ERROR)
"""Entities in one request. Source: ``QuorumController.MAX_RECORDS_PER_USER_OP``."""

MAX_OPS: Final = 50_000
"""Operations in one request, those included that change nothing: five for each entity."""

_OPS: Final = ListLimit(MAX_OPS, _TOO_MANY, _CONTROLLER_ERROR)

_NOT_NUMBERS: Final[Mapping[str, float]] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
}

Proposal = tuple[ClientQuotaAlteration, Expected | None]


def read_alterations(reader: ObjectReader) -> list[Proposal]:
    """Read the member ``alterations``; a missing one is an empty list.

    Raises:
        InvalidRequestError: More entities or operations than a request may have.
    """
    proposals = []
    number_of_ops = 0
    for pointer, item in reader.items("alterations", ENTITIES):
        alteration = ObjectReader.of(item, pointer, _ALTERATION_FIELDS, reader.reading)
        if alteration is not None:
            proposals.append(_read_alteration(alteration))
            number_of_ops += len(proposals[-1][0].ops)
            if number_of_ops > MAX_OPS:
                raise _too_many_ops()
    return proposals


def _too_many_ops() -> InvalidRequestError:
    detail = f"Over {MAX_OPS} operations; a request changes at most 10,000 keys."
    violation = Violation("/alterations", _TOO_MANY, detail, _CONTROLLER_ERROR)
    return InvalidRequestError(detail, violations=[violation])


def _read_alteration(reader: ObjectReader) -> Proposal:
    reader.need("entity", "ops")
    entity = read_entity(reader)
    items = reader.items("ops", _OPS)
    ops = tuple(_read_op(item, pointer, reader.reading) for pointer, item in items)
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
