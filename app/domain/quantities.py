"""Values of quotas in words: ``1.5 MiB/s``, ``150 %``, ``unlimited``; and factors between them.

``quantities.js`` of the page writes the same; ``tests/testkit/value_cases.json`` has the cases of
both.
"""

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from app.domain.quota_keys import INT_MAX, LONG_MAX, QuotaKey

UNLIMITED: Final = "unlimited"

_BYTE_RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_UNITS: Final = {
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
    singular, plural = _UNITS.get(QuotaKey(key), ("", "")) if key in set(QuotaKey) else ("", "")
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
