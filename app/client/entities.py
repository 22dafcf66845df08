"""Entities on the command line: read from ``--names``, shown as the proposal shows them.

What is shown can be given back: the same escapes are written and read. Source: KIP-546,
``ClientQuotasCommand``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.client.errors import UsageError
from app.domain.entities import ENTITY_TYPES

Entity = Mapping[str, str | None]
"""Type to name; null is the default entity."""

DEFAULT: Final = "<default>"
"""How the default entity is shown. A name that is this text is shown with a backslash before it."""

_KNOWN: Final = tuple(kind.value for kind in ENTITY_TYPES)
_HEX: Final = "[0-9a-fA-F]"
_ESCAPE: Final = re.compile(rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U({_HEX}{{8}})|([\\,=<>{{}}]))")
_PART: Final = re.compile(r"\\.|[^,]", re.DOTALL)
"""Of a piece: an escape, or a character that is no comma; a comma stands between pieces."""


def read_names(text: str, option: str) -> list[tuple[str, str]]:
    r"""Read ``user=alice,client-id=etl``.

    The first ``=`` ends the type. In a name ``\,`` is a comma and ``\\`` a backslash.

    Raises:
        UsageError: A piece that is no pair, an unknown type or escape.
    """
    return [_pair(piece, option, escaped=True) for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    """Split at the commas that no backslash stands before."""
    pieces = [""]
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            pieces.append("")
            at += 1
        else:
            pieces[-1] += part.group()
            at = part.end()
    return pieces


def read_name(text: str) -> tuple[str, str]:
    """Read one ``TYPE=NAME``, in which the name is taken as it is."""
    return _pair(text, "--name", escaped=False)


def read_types(text: str, option: str) -> list[str]:
    """Read ``user,client-id``."""
    return [_known(kind.strip(), option) for kind in text.split(",")]


def _pair(piece: str, option: str, *, escaped: bool) -> tuple[str, str]:
    kind, mark, name = piece.partition("=")
    if not mark:
        raise UsageError(
            f"{option}: {visible(piece)} is not TYPE=NAME. If a comma belongs to a name, write \\, "
            "for it, or give the pair whole with --name."
        )
    return _known(kind.strip(), option), _unescaped(name, option) if escaped else name


def _known(kind: str, option: str) -> str:
    if kind in _KNOWN:
        return kind
    raise UsageError(
        f"{option}: {visible(kind)} is not an entity type; those are {', '.join(_KNOWN)}. "
        "If a comma belongs to a name, write \\, for it, or give the pair whole with --name."
    )


def _unescaped(name: str, option: str) -> str:
    rest = _ESCAPE.sub("", name)
    if "\\" in rest:
        raise UsageError(
            f"{option}: {visible(name)} has a backslash that begins no escape; write \\\\ for a "
            "backslash, or give the pair whole with --name."
        )
    return _ESCAPE.sub(_character, name)


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return escape[4] if code is None else _from_code(int(code, 16))


def _from_code(code: int) -> str:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise UsageError(f"U+{code:04X} is not a character.")
    return chr(code)


def show_entity(entity: Entity) -> str:
    """Return ``{user=<default>, client-id=etl}``, types in the order of answers."""
    kinds = [kind for kind in _KNOWN if kind in entity]
    kinds += [kind for kind in entity if kind not in _KNOWN]
    return f"{{{', '.join(f'{visible(kind)}={show_name(entity[kind])}' for kind in kinds)}}}"


def show_name(name: str | None) -> str:
    r"""Return a name for people, as ``--names`` reads it; nothing a terminal would act on."""
    if name is None:
        return DEFAULT
    if name == DEFAULT:
        return f"\\{name}"
    return visible(name.replace("\\", "\\\\").replace(",", "\\,"))


def visible(text: str) -> str:
    """Return text in which controls, marks of direction and the like are escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _code(ord(one)) for one in text)


def _code(number: int) -> str:
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def entity_of(names: Iterable[tuple[str, str]], defaults: Iterable[str]) -> dict[str, str | None]:
    """Return the entity of names and defaults.

    Raises:
        UsageError: A type is there twice.
    """
    entity: dict[str, str | None] = {}
    pairs: list[tuple[str, Any]] = [*names, *((kind, None) for kind in defaults)]
    for kind, name in pairs:
        if kind in entity:
            raise UsageError(f"{kind} is given twice; an entity has each type at most once.")
        entity[kind] = name
    return entity
