"""Texts and numbers as YAML, such that readers of YAML 1.1 and 1.2 see the same.

What either could take for something else is quoted.
"""

import re
from typing import Final

from app.domain.entities import escape_of

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Plain words that YAML 1.1 reads as null or boolean, in any case."""


def yaml_text(text: str, *, ascii_only: bool = False) -> str:
    """Return a text, quoted where it has to be; what is not printable is an escape.

    Args:
        text: Any.
        ascii_only: Escape all that is not ASCII, for a terminal that might show it wrongly.
    """
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(_escaped(character, ascii_only=ascii_only) for character in text)}"'


def _escaped(character: str, *, ascii_only: bool) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable() and (character.isascii() or not ascii_only):
        return character
    return escape_of(character)


def yaml_float(value: float) -> str:
    """Return a float with a point and a signed exponent, as YAML 1.1 wants it."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"
