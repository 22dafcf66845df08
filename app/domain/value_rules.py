"""The rules for an operation: its key, its value, the entity that carries it."""

from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Final

from app.domain.alterations import Op, Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import Violation
from app.domain.quota_keys import LONG_MAX, QUOTA_KEY_RULES, TWO_TO_63, QuotaKeyRule, keys_for


def exact_float(value: Decimal) -> float | None:
    """Return the float64 for the number as written, or null for an integer that it cannot hold.

    2^63 - 1, the customary way to write "unlimited", means 2^63. A fraction is rounded to the
    nearest float64 as everywhere; infinity stands for what is too large for float64.
    """
    if value == LONG_MAX:
        return float(TWO_TO_63)
    number = float(value)
    if number in (float("inf"), float("-inf")) or value != value.to_integral_value():
        return number
    return number if Decimal(number) == value else None


def op_violations(
    op: Op, entity: ClientQuotaEntity, stored: Values, pointer: str, index: int
) -> Iterator[Violation]:
    """Yield every broken rule of one operation.

    Args:
        op: As proposed.
        entity: The entity that would carry the key.
        stored: The entity's present values: a key that is stored may be named although no rule
            knows it, so that nothing is stuck.
        pointer: Of the operation.
        index: Of the alteration in the request.
    """
    yield from _form_violations(op, pointer, index)
    yield from _key_violations(op, entity, stored, f"{pointer}/key", index)
    if op.value is not None:
        for code, detail, kafka_error in _value_problems(op):
            yield Violation(f"{pointer}/value", code, detail, kafka_error, index)


def _form_violations(op: Op, pointer: str, index: int) -> Iterator[Violation]:
    if op.remove and op.value is not None:
        detail = "An operation either sets a value or removes the key, not both."
        yield Violation(pointer, "value-with-remove", detail, index=index)
    if not op.remove and op.value is None:
        detail = "An operation needs a value, or remove: true."
        yield Violation(pointer, "value-or-remove-missing", detail, index=index)


def _key_violations(
    op: Op, entity: ClientQuotaEntity, stored: Values, pointer: str, index: int
) -> Iterator[Violation]:
    if op.key in stored:
        return
    told = None if op.remove else "INVALID_REQUEST"  # a broker takes any removal for done
    if op.key not in QUOTA_KEY_RULES:
        known = ", ".join(QUOTA_KEY_RULES)
        detail = f"Unknown quota key {op.key!r}; a broker knows {known}."
        yield Violation(pointer, "unknown-key", detail, told, index)
        return
    allowed = keys_for(entity.types)
    if allowed and op.key not in allowed:
        detail = f"This entity cannot carry {op.key}; it may carry {', '.join(allowed)}."
        yield Violation(pointer, "key-not-allowed", detail, told, index)


Problem = tuple[str, str, str | None]


def _value_problems(op: Op) -> Iterator[Problem]:
    value = op.value
    if value is None:
        return
    number = exact_float(value)
    rule = QUOTA_KEY_RULES.get(op.key)
    if value <= 0:
        yield "not-positive", f"{op.key} must be greater than 0.", "INVALID_REQUEST"
    elif number is not None and number == float("inf"):
        told = "INVALID_REQUEST" if rule is not None and rule.integral else None
        yield "not-finite", f"{op.key} must be a finite number.", told
    elif rule is not None:
        yield from _bound_problems(op.key, value, rule)
    if number is None and (rule is None or value <= rule.maximum):
        yield "not-exact", _NOT_EXACT, None


_NOT_EXACT = (
    "Kafka keeps values as 64-bit floating point, which cannot hold this integer exactly; "
    "choose a neighbour that it can."
)


_BROKER_TOLERANCE: Final = 1e-6
"""The fraction that a broker lets pass. Source: ``ClientQuotaControlManager``."""


def _bound_problems(key: str, value: Decimal, rule: QuotaKeyRule) -> Iterator[Problem]:
    kafka_error = "INVALID_REQUEST"
    if rule.integral and value != value.to_integral_value():
        told = kafka_error if float(value) % 1 > _BROKER_TOLERANCE else None
        yield "fraction", f"{key} cannot be a fractional value.", told
    if value < _exactly(rule.minimum):
        yield "below-minimum", f"{key} must be at least {rule.minimum:g}.", None
    if value > _exactly(rule.maximum):
        source = kafka_error if rule.integral else None
        yield "above-maximum", f"{key} must be at most {int(rule.maximum)}.", source


@cache
def _exactly(bound: float) -> Decimal:
    """Return a bound of a rule as it is written, which is not always what float64 holds."""
    return Decimal(str(bound))
