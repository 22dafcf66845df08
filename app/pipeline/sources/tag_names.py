"""User names and client-ids as brokers tag their metrics, and back."""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NEVER_QUOTED: Final = re.compile(r"[\w\-%. \t]*", re.ASCII)
_ESCAPES: Final = {"\\": "\\", '"': '"', "*": "*", "?": "?", "n": "\n"}


def user_of_tag(tag: str) -> str | None:
    """Return the user whom a ``user`` tag names, or null where it cannot be decoded.

    Source: ``Sanitizer.sanitize``, which form-encodes the name.
    """
    text = client_id_of_tag(tag)
    if text is None or ("%" not in text and "+" not in text):
        return text
    if text.count("%") != len(_ENCODED.findall(text)):
        return None
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeError:
        return None


def client_id_of_tag(tag: str) -> str | None:
    """Return the client-id that a ``client-id`` tag names, or null where it cannot be decoded.

    The tag is the name itself, but JMX quotes one with special characters.
    Source: ``Sanitizer.jmxSanitize``, ``ObjectName.quote``.
    """
    if len(tag) < 2 or not (tag[0] == tag[-1] == '"'):
        return readable(tag)
    name = _unescaped(tag[1:-1])
    if name is not None and _NEVER_QUOTED.fullmatch(name):
        # The name itself has the quotes, and its metric did not pass JMX.
        return tag
    return name


def readable(name: str) -> str | None:
    """Return the name, or null where it is no Unicode text (a lone surrogate)."""
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    return name


def _unescaped(quoted: str) -> str | None:
    parts: list[str] = []
    characters = iter(quoted)
    for character in characters:
        if character == "\\":
            meant = _ESCAPES.get(next(characters, ""))
            if meant is None:
                return None
            parts.append(meant)
        elif character == '"':
            return None
        else:
            parts.append(character)
    return readable("".join(parts))
