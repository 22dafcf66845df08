"""Quotas as YAML: the document of export, plan and apply.

Readers of YAML 1.1 and 1.2 must see the same names and numbers: what either could take for
something else is quoted, and every character that is not plainly printable is escaped.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity
from app.http.encoding import JsonNumber, entity_json, values_json

API_VERSION: Final = "quotas/v1"

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Plain words that YAML 1.1 reads as null or boolean, in any case."""

_LONGEST_SIMPLE_KEY: Final = 500
"""A longer key is marked with ``?``: a simple key has at most 1,024 characters, escapes included.
Source: YAML 1.1, 7.4.2 of YAML 1.2."""


def yaml_rows(entries: Iterable[tuple[ClientQuotaEntity, Values]]) -> Iterator[bytes]:
    """Yield the document in UTF-8, entity by entity."""
    yield f"apiVersion: {API_VERSION}\n".encode()
    heading = "quotas:\n"
    for entity, values in entries:
        names = _mapping((kind, _scalar(name)) for kind, name in entity_json(entity).items())
        numbers = _mapping((key, _number(value)) for key, value in values_json(values).items())
        yield f"{heading}  - entity: {names}\n    values: {numbers}\n".encode()
        heading = ""
    if heading:
        yield b"quotas: []\n"


def _mapping(members: Iterable[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{_key(name)}: {text}' for name, text in members)}}}"


def _key(name: str) -> str:
    text = _scalar(name)
    return f"? {text} " if len(text) > _LONGEST_SIMPLE_KEY else text


def _scalar(text: str | None) -> str:
    if text is None:
        return "null"
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _number(value: JsonNumber) -> str:
    """Write a float with a point and a signed exponent, as YAML 1.1 wants it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int):
        return str(value)
    mantissa, exponent_mark, exponent = repr(value).partition("e")
    point = "" if "." in mantissa else ".0"
    return f"{mantissa}{point}{exponent_mark}{exponent}"
