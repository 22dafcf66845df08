"""Values of quotas in words, written and read: ``1.5 MiB/s``, ``150 %``, ``unlimited``.

``quantities.js`` of the page does the same; ``tests/testkit/value_cases.json`` has the cases of
both.
"""

import math
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from app.domain.alterations import NOT_NUMBERS, DesiredValue, read_decimal
from app.domain.entities import visible
from app.domain.quota_keys import INT_MAX, LONG_MAX, QUOTA_KEY_RULES, QuotaKey, unknown_key

UNLIMITED: Final = "unlimited"
"""Stands for the key's largest value, which overrides less specific rules."""

UNSET: Final = "unset"
"""Stands for no value: the key is to be removed."""

_BYTE_RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_NOUNS: Final = {
    QuotaKey.REQUEST_PERCENTAGE: ("%", "%"),
    QuotaKey.CONTROLLER_MUTATION_RATE: ("partition/s", "partitions/s"),
    QuotaKey.CONNECTION_CREATION_RATE: ("connection/s", "connections/s"),
}
"""For one, and for any other number."""

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP: Final = 1024
_SMALLEST_PLAIN: Final = Decimal("0.01")
_LARGEST_PLAIN: Final = Decimal(10) ** 15
_WHOLE_FROM: Final = 100


def value_in_words(key: str, value: float | str | None) -> str:
    """Return a value with its unit, rounded to two decimals.

    Bytes are in powers of 1,024. Null is no limit, and so is what brokers take for none: 2^63 bytes
    and 2147483647 connections. A text (``NaN``, ``Infinity``) stays as it is.
    """
    if value is None:
        return UNLIMITED
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(Decimal(value))
    if key in _BYTE_RATES:
        return UNLIMITED if value >= LONG_MAX else f"{bytes_in_words(value)}/s"
    if key == QuotaKey.CONNECTION_CREATION_RATE and value >= INT_MAX:
        return UNLIMITED
    text = number_in_words(value)
    singular, plural = _NOUNS.get(QuotaKey(key), ("", "")) if key in set(QuotaKey) else ("", "")
    return f"{text} {singular if text == '1' else plural}".rstrip()


def bytes_in_words(value: float) -> str:
    """Return a number of bytes in the largest unit of which it has one after rounding."""
    number, power = Decimal(value), 0
    while power < len(_BINARY) - 1 and abs(_rounded(number)) >= _STEP:
        number, power = number / _STEP, power + 1
    return f"{_in_words(number)} {_BINARY[power]}"


def number_in_words(value: float) -> str:
    """Return a number with at most two decimals, and commas between thousands.

    Under 0.01 and from 10^15 it has three digits that count, with an exponent where that is
    shorter: ``0.00123``, ``1e-7``, ``1.8e308``.
    """
    return _in_words(Decimal(value))


def factor_in_words(factor: float) -> str:
    """Return a new value by an old one: ``× 1.5``, or ``÷ 1.5`` where it is lower.

    From 100 on it is a whole number, below it has three digits that count.
    """
    times = factor >= 1 or factor <= 0
    number = Decimal(factor) if times else 1 / Decimal(factor)
    if number < _WHOLE_FROM:
        number = _significant(number)
    elif number < _LARGEST_PLAIN:
        number = number.quantize(Decimal(1), ROUND_HALF_UP)
    return f"{'×' if times else '÷'} {_in_words(number)}"


def _in_words(number: Decimal) -> str:
    size = abs(number)
    if size and not _SMALLEST_PLAIN <= size < _LARGEST_PLAIN:
        return _few_digits(number)
    text = f"{_rounded(number):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rounded(number: Decimal) -> Decimal:
    return (
        number.quantize(_SMALLEST_PLAIN, ROUND_HALF_UP) if abs(number) < _LARGEST_PLAIN else number
    )


def _few_digits(number: Decimal) -> str:
    number = _significant(number)
    exponent = number.adjusted()
    if -7 < exponent < 0:
        return f"{number:f}"
    mantissa = number.scaleb(-exponent).normalize()
    return f"{mantissa:f}e{exponent}"


def _significant(number: Decimal) -> Decimal:
    """Return a number with three digits that count, and no zeros behind them."""
    if not number:
        return number
    return number.quantize(Decimal(1).scaleb(number.adjusted() - 2), ROUND_HALF_UP).normalize()


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
