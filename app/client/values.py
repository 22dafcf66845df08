"""Quota values: read with units, shown exactly."""

import re
from decimal import Decimal
from typing import Any, Final

from app.client.entities import visible
from app.client.errors import UsageError

_NUMBER: Final = r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?"
_VALUE: Final = re.compile(rf"({_NUMBER})\s*([A-Za-z]*|%)(/s)?")

_UNITS: Final = {
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
_OF_KEYS: Final = {
    "producer_byte_rate": tuple(_UNITS),
    "consumer_byte_rate": tuple(_UNITS),
    "request_percentage": ("", "%"),
}
_PLAIN: Final = ("",)

Number = int | float


def read_value(key: str, text: str) -> Number:
    """Read ``1048576``, ``1MiB``, ``10MB/s`` or ``50%``; what is no whole number is a float.

    Bounds are the service's to judge.

    Raises:
        UsageError: Not a number, or a unit that the key does not have.
    """
    read = _VALUE.fullmatch(text.strip())
    if read is None:
        raise UsageError(f"{visible(key)}={visible(text)}: not a number such as 1048576 or 10MiB.")
    number, unit, per_second = read.groups()
    units = _OF_KEYS.get(key, _PLAIN)
    if unit not in units or (per_second and unit == "%"):
        raise UsageError(f"{visible(key)}={visible(text)}: {_units_said(key, units)}")
    return exact(Decimal(number) * _UNITS.get(unit, 1), f"{visible(key)}={visible(text)}")


def exact(number: Decimal, where: str) -> Number:
    """Return a number as JSON writes it without loss.

    Raises:
        UsageError: A fraction with more digits than float64 holds.
    """
    if number == number.to_integral_value():
        return int(number)
    nearest = float(number)
    if Decimal(repr(nearest)) != number:
        raise UsageError(f"{where}: a quota holds fewer digits; the nearest is {nearest!r}.")
    return nearest


def _units_said(key: str, units: tuple[str, ...]) -> str:
    if len(units) > 2:
        return f"units of a byte rate are {', '.join(units[1:])} (or none: bytes per second)."
    if "%" in units:
        return "the unit is %, or none."
    return f"{visible(key)} has no unit; write the number alone."


def show_value(value: Any) -> str:
    """Return a value of an answer: digits, ``NaN`` or ``Infinity``."""
    return value if isinstance(value, str) else repr(value)


def read_changes(add: str | None, delete: str | None) -> list[dict[str, Any]]:
    """Read ``--add`` and ``--delete`` into the ops of an alteration.

    Raises:
        UsageError: A piece that is not ``key=value`` or a key, or nothing at all.
    """
    ops: list[dict[str, Any]] = []
    for piece in _pieces(add):
        key, mark, text = piece.partition("=")
        if not mark:
            raise UsageError(f"--add: {visible(piece)} is not key=value.")
        ops.append({"key": key.strip(), "value": read_value(key.strip(), text)})
    for piece in _pieces(delete):
        if "=" in piece:
            raise UsageError(f"--delete: {visible(piece)} has a value; name the key alone.")
        ops.append({"key": piece.strip(), "remove": True})
    return ops


def _pieces(text: str | None) -> list[str]:
    return [] if text is None else text.split(",")
