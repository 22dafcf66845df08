"""Quota values: read as people and other tools write them, written so that they are read back."""

import re
from collections.abc import Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Final

from app.domain.entities import visible
from app.domain.quota_keys import LONG_MAX, QUOTA_KEY_RULES, TWO_TO_63, unknown_key

DesiredValue = Decimal | float
"""A value as written; a float only for NaN and the infinities, which JSON writes as text."""

JsonNumber = int | float | str

NOT_NUMBERS: Final[Mapping[str, float]] = {
    text: float(text) for text in ("NaN", "Infinity", "-Infinity")
}
"""Stored values that JSON lacks, by their text in documents."""

UNLIMITED: Final = "unlimited"
"""Stands for the key's largest value, which overrides less specific rules."""

UNSET: Final = "unset"
"""Stands for no value: the key is to be removed."""

_TEXT_OF: Final = {str(value): text for text, value in NOT_NUMBERS.items()}


def quota_value_json(value: float) -> JsonNumber:
    """Return a stored value for JSON.

    Integral values have no fraction; 2^63 is 9223372036854775807; beyond it a float is written,
    because no 64-bit integer holds it; NaN and infinity are strings.
    """
    if value == TWO_TO_63:
        return LONG_MAX
    if abs(value) < TWO_TO_63:
        return int(value) if value.is_integer() else value
    return _TEXT_OF.get(str(value), value)


MAX_EXPONENT: Final = 9_999
"""Numbers beyond 10^±9999 are read as that power: float64 ends at 10^308, so no rule can tell
the difference, and nobody's arithmetic meets an exponent that fills the memory."""


def read_decimal(text: str) -> Decimal:
    """Return a number as JSON writes it, with every digit."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return _beyond(text, shrinking="e-" in text.lower())
    if abs(number.adjusted()) <= MAX_EXPONENT:
        return number
    return _beyond(text, shrinking=number.adjusted() < 0)


def _beyond(text: str, *, shrinking: bool) -> Decimal:
    sign = "-" if text.startswith("-") else ""
    mantissa = text.lower().partition("e")[0]
    if not mantissa.strip("+-0."):
        return Decimal(f"{sign}0")
    return Decimal(f"{sign}1e{-MAX_EXPONENT if shrinking else MAX_EXPONENT}")


NUMBER: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A decimal number in any spelling of a float64: ``1048576``, ``1.0E7``, ``5e-324``."""

_AMOUNT: Final = re.compile(rf"({NUMBER})\s*([A-Za-z]*|%)(/s)?")
_COMMA: Final = re.compile(r"[0-9]+,[0-9]+")
_LONGEST: Final = 1_000
_EXACT: Final = Context(prec=2 * _LONGEST)

_BYTES: Final[Mapping[str, int]] = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_UNITS: Final[Mapping[str, Mapping[str, int]]] = {"bytes/s": _BYTES, "percent": {"": 1, "%": 1}}
"""By the unit of a rule: what may stand behind a number, and how many of that unit it is."""

_PLAIN: Final[Mapping[str, int]] = {"": 1}


def read_value(key: str, text: str) -> DesiredValue | None:
    """Read a value of a document or of the command line; null is ``unset``.

    ``1048576``, ``1.0E7``, ``4MiB``, ``500kB/s``, ``80%``, ``unlimited``, ``unset``, ``NaN`` and
    ``Infinity``. Bounds are not judged here.

    Raises:
        ValueError: A sentence that begins with key and text; where the key is no quota key the text
            may be a password, and is not repeated.
    """
    written = text.strip()
    if written == UNSET:
        return None
    if written in NOT_NUMBERS:
        return NOT_NUMBERS[written]
    rule = QUOTA_KEY_RULES.get(key)
    if written == UNLIMITED and rule is not None:
        return Decimal(int(rule.maximum))
    amount = _AMOUNT.fullmatch(written) if len(written) <= _LONGEST else None
    number, unit, per_second = ("", "", None) if amount is None else amount.groups()
    units = _PLAIN if rule is None else _UNITS.get(rule.unit, _PLAIN)
    if number and unit in units and not (per_second and unit == "%"):
        return _EXACT.multiply(read_decimal(number), units[unit])
    if rule is None:
        raise ValueError(unknown_key(key))
    start = f"{key}={visible(written[:_QUOTED])}"
    raise ValueError(f"{start}: {_unit_hint(key, units) if number else _number_hint(written)}")


_QUOTED: Final = 80


def _number_hint(text: str) -> str:
    if _COMMA.fullmatch(text):
        return "a fraction begins with a point, and nothing stands between thousands."
    return "not a number such as 1048576 or 10MiB."


def _unit_hint(key: str, units: Mapping[str, int]) -> str:
    if units is _BYTES:
        names = ", ".join(unit for unit in units if unit)
        return f"units of a byte rate are {names} (or none: bytes per second)."
    if "%" in units:
        return "the unit is %, or none."
    return f"{key} has no unit; write the number alone."
