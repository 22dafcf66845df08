"""Entities and quota values: read from the command line, written as the proposal writes them.

What is printed can be read again: the same escapes are written and read. Source: KIP-546,
``ClientQuotasCommand``.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from app.client.errors import UsageError
from app.command_line import did_you_mean
from app.domain.entities import ENTITY_TYPES, visible
from app.domain.quantities import read_value
from app.domain.quota_keys import QUOTA_KEY_RULES, TWO_TO_63

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


_COMPONENT: Final = re.compile(r"\s*(?:any|user|client-id|ip)(?:$|:(?:default|any|absent)$|[\^~]=)")
"""A condition of ``GET /quotas`` other than a name: the type alone, a word, a prefix, a text."""


def read_components(text: str, option: str) -> list[str]:
    """Read ``user=alice,client-id=etl`` into conditions as of ``GET /quotas``; all must hold.

    Names are written as in ``--names``; ``client-id:default``, ``user^=team-`` and the like stand
    beside them.
    """
    components = []
    for number, item in enumerate(_ITEM.findall(text), start=1):
        if _COMPONENT.match(item):
            components.append(_unescape(item.strip(), option))
        elif "=" in item:
            components.append("=".join(_pair(item, option, escaped=True)))
        else:
            raise UsageError(
                f"{option}: condition {number} is none. Write user=alice, user^=team-, user:any or "
                "client-id:default; if a comma belongs to a name, write \\, for it."
            )
    return components


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


Number = int | float


def json_number(value: Decimal) -> Number:
    """Return a number as JSON writes it: each integer up to 2^63 with all of its digits.

    Beyond that a float says the same; it is infinite where float64 holds nothing so large.
    """
    if abs(value) <= TWO_TO_63 and value == value.to_integral_value():
        return int(value)
    return float(value)


def show_value(value: Any) -> str:
    """Return a value of an answer: digits, ``NaN`` or ``Infinity``."""
    return visible(value) if isinstance(value, str) else repr(value)


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
        ops.append(_op(key, text))
    for item in (item for text in delete for item in text.split(",")):
        key, mark, _ = map(str.strip, item.partition("="))
        if mark:
            raise UsageError(f"--delete: {visible(key)} has a value; name the key alone.")
        ops.append({"key": key, "remove": True})
    return ops


def _op(key: str, text: str) -> dict[str, Any]:
    try:
        value = read_value(key, text)
    except ValueError as error:
        sentence = str(error) if key in QUOTA_KEY_RULES else _no_quota_key(key)
        raise UsageError(sentence) from error
    if value is None:
        return {"key": key, "remove": True}
    number = value if isinstance(value, float) else json_number(value)
    if not math.isfinite(number):
        raise UsageError(f"--add: {visible(key)} takes a finite number.")
    return {"key": key, "value": number}


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
