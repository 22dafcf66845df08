"""Entities and quota values: read from the command line, written as the proposal writes them.

What is printed can be read again: the same escapes are written and read. Source: KIP-546,
``ClientQuotasCommand``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from app.client.errors import UsageError, did_you_mean
from app.domain.entities import ENTITY_TYPES, visible
from app.domain.quota_keys import QUOTA_KEY_RULES

Entity = Mapping[str, str | None]
"""Type to name; null is the default entity."""

_TYPES: Final = tuple(kind.value for kind in ENTITY_TYPES)
_HEX: Final = "[0-9a-fA-F]"
_ESCAPE: Final = re.compile(rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U({_HEX}{{8}})|([\\,=<>{{}}]))")
_ITEM: Final = re.compile(r"(?:^|,)((?:\\.|[^,])*)", re.DOTALL)
"""Commas separate the items, but for those after a backslash."""


def read_names(text: str, option: str) -> list[tuple[str, str]]:
    r"""Read ``user=alice,client-id=etl``.

    The first ``=`` ends the type. In a name ``\,`` is a comma and ``\\`` a backslash.
    """
    return [_pair(item, option, escaped=True) for item in _ITEM.findall(text)]


def read_name(text: str) -> tuple[str, str]:
    """Read one ``TYPE=NAME``, in which the name is taken as it is."""
    return _pair(text, "--name", escaped=False)


def read_types(text: str, option: str) -> list[str]:
    """Read ``user,client-id``."""
    return [_check_type(kind.strip(), option) for kind in text.split(",")]


def _pair(item: str, option: str, *, escaped: bool) -> tuple[str, str]:
    kind, mark, name = item.partition("=")
    if not mark:
        raise UsageError(
            f"{option}: {visible(item)} is not TYPE=NAME. If a comma belongs to a name, write \\, "
            "for it, or give the pair whole with --name."
        )
    return _check_type(kind.strip(), option), _unescape(name, option) if escaped else name


def _check_type(kind: str, option: str) -> str:
    if kind in _TYPES:
        return kind
    raise UsageError(
        f"{option}: {visible(kind)} is not an entity type; those are {', '.join(_TYPES)}."
        f"{did_you_mean(kind, _TYPES)} If a comma belongs to a name, write \\, for it, or give "
        "the pair whole with --name."
    )


def _unescape(name: str, option: str) -> str:
    rest = _ESCAPE.sub("", name)
    if "\\" in rest:
        raise UsageError(
            f"{option}: {visible(name)} has a backslash that begins no escape; write \\\\ for a "
            "backslash, or give the pair whole with --name."
        )
    return _ESCAPE.sub(_character, name)


def _character(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2] or escape[3]
    if digits is None:
        return escape[4]
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise UsageError(f"U+{code:04X} is not a character.")
    return chr(code)


def entity_of(names: Iterable[tuple[str, str]], defaults: Iterable[str]) -> dict[str, str | None]:
    """Return the entity of names and defaults."""
    entity: dict[str, str | None] = {}
    pairs: list[tuple[str, Any]] = [*names, *((kind, None) for kind in defaults)]
    for kind, name in pairs:
        if kind in entity:
            raise UsageError(f"{kind} is there twice; an entity has each type at most once.")
        entity[kind] = name
    return entity


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
    """
    read = _VALUE.fullmatch(text.strip())
    if read is None:
        raise UsageError(f"{visible(key)}={visible(text)}: not a number such as 1048576 or 10MiB.")
    number, unit, per_second = read.groups()
    units = _OF_KEYS.get(key, _PLAIN)
    if unit not in units or (per_second and unit == "%"):
        raise UsageError(f"{visible(key)}={visible(text)}: {_unit_hint(key, units)}")
    return exact(Decimal(number) * _UNITS.get(unit, 1), f"{visible(key)}={visible(text)}")


def exact(number: Decimal, where: str) -> Number:
    """Return a number as JSON writes it; a fraction that float64 does not hold is refused."""
    if number == number.to_integral_value():
        return int(number)
    nearest = float(number)
    if Decimal(repr(nearest)) != number:
        raise UsageError(f"{where}: a quota holds fewer digits; the nearest is {nearest!r}.")
    return nearest


def _unit_hint(key: str, units: tuple[str, ...]) -> str:
    if len(units) > 2:
        return f"units of a byte rate are {', '.join(units[1:])} (or none: bytes per second)."
    if "%" in units:
        return "the unit is %, or none."
    return f"{visible(key)} has no unit; write the number alone."


def show_value(value: Any) -> str:
    """Return a value of an answer: digits, ``NaN`` or ``Infinity``."""
    return value if isinstance(value, str) else repr(value)


_BETWEEN_CONFIGS: Final = re.compile(r",(?![^\[]*\])")
"""A comma, but for those in brackets, into which kafka-configs puts several values of a key."""


def read_changes(add: Sequence[str], delete: Sequence[str]) -> list[dict[str, Any]]:
    """Read each ``--add`` and ``--delete`` into the ops of an alteration.

    The value of what is no quota key is not repeated: it may be a password.
    """
    ops: list[dict[str, Any]] = []
    for number, item in enumerate(
        (item for text in add for item in _BETWEEN_CONFIGS.split(text)), 1
    ):
        key, mark, text = map(str.strip, item.partition("="))
        if not mark:
            raise UsageError(f"--add: item {number} is not KEY=VALUE.")
        if key not in QUOTA_KEY_RULES and re.fullmatch(_NUMBER, text) is None:
            raise UsageError(_no_quota_key(key))
        ops.append({"key": key, "value": read_value(key, text)})
    for item in (item for text in delete for item in text.split(",")):
        key, mark, _ = map(str.strip, item.partition("="))
        if mark:
            raise UsageError(f"--delete: {visible(key)} has a value; name the key alone.")
        ops.append({"key": key, "remove": True})
    return ops


def _no_quota_key(key: str) -> str:
    if key.startswith("SCRAM-"):
        return (
            "--add: SCRAM credentials are no quotas, and this service sets none: kafka-configs "
            "does. The value is not repeated here."
        )
    return (
        f"--add: {visible(key)} is no quota key.{did_you_mean(key, QUOTA_KEY_RULES)} Those are "
        f"{', '.join(QUOTA_KEY_RULES)}. The value is not repeated here."
    )
