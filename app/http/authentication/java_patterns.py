r"""Java's regular expressions, as far as Python's mean the same by them; the rest is refused.

What is accepted: literals, ``.``, ``^`` at a beginning, ``$`` at an end, ``[...]`` of literals,
ranges and classes, ``\d \D \s \S \w \W``, groups ``(...)``, ``(?:...)``, ``(?=...)``,
``(?!...)``, ``|``, the quantifiers ``? * + {n} {n,} {n,m}``, also lazy and possessive, and
``(?i)`` at the very beginning. The text must be one line.

Source: ``java.util.regex.Pattern``.
"""

import re
from typing import Final

_QUANTIFIER: Final = re.compile(r"(?:[?*+]|\{([0-9]{1,4})(?:,([0-9]{1,4})?)?\})[?+]?")
_GROUPS: Final = ("(?:", "(?=", "(?!")
_CLASS_ESCAPES: Final = frozenset("dDsSwW")
_ANY_CASE: Final = "(?i)"


class JavaPatternError(ValueError):
    """The expression is none, or Python would not understand it as Java does."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """Return the expression, translated.

    Raises:
        JavaPatternError: It is malformed, or has something that is not accepted here.
    """
    flags = re.ASCII
    rest = pattern.removeprefix(_ANY_CASE)
    if rest != pattern:
        flags |= re.IGNORECASE
    try:
        return re.compile(_Translation(rest).translated(), flags)
    except (re.error, OverflowError) as error:
        message = f"{pattern!r} is no regular expression: {error}"
        raise JavaPatternError(message) from None


class _Translation:
    """Reads an expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def translated(self) -> str:
        parts = []
        while self._at < len(self._pattern):
            parts.append(self._next_part())
        return "".join(parts)

    def _next_part(self) -> str:
        character = self._pattern[self._at]
        if character in "?*+{":
            return self._quantifier()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        self._at += 1
        if character == "$":
            return r"\Z"
        return character if character in ".^|)" else re.escape(character)

    def _quantifier(self) -> str:
        found = _QUANTIFIER.match(self._pattern, self._at)
        if found is None:
            raise self._refused("a brace that is no quantifier")
        self._at = found.end()
        return found[0]

    def _group(self) -> str:
        for beginning in _GROUPS:
            if self._pattern.startswith(beginning, self._at):
                self._at += len(beginning)
                return beginning
        if self._pattern.startswith("(?", self._at):
            raise self._refused("a group of this kind")
        self._at += 1
        return "("

    def _escape(self) -> str:
        escaped = self._pattern[self._at + 1 : self._at + 2]
        if not escaped:
            raise self._refused("a backslash with nothing to escape")
        if escaped.isascii() and escaped.isalnum() and escaped not in _CLASS_ESCAPES:
            raise self._refused(f"the escape \\{escaped}")
        self._at += 2
        return f"\\{escaped}" if escaped in _CLASS_ESCAPES else re.escape(escaped)

    def _class(self) -> str:
        """Translate ``[...]``; a nested class and an intersection are Java's alone."""
        beginning = "[^" if self._pattern.startswith("[^", self._at) else "["
        self._at += len(beginning)
        parts = [beginning]
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            if character == "]" and len(parts) > 1:
                self._at += 1
                return "".join([*parts, "]"])
            if character in "[]" or self._pattern.startswith(("&&", "--"), self._at):
                raise self._refused("a character class made of others")
            parts.append(self._member())
        raise self._refused("a character class without its end")

    def _member(self) -> str:
        if self._pattern[self._at] == "\\":
            return self._escape()
        self._at += 1
        character = self._pattern[self._at - 1]
        return character if character == "-" else re.escape(character)

    def _refused(self, what: str) -> JavaPatternError:
        return JavaPatternError(
            f"{self._pattern!r} has {what} at position {self._at + 1}, which is not accepted here"
        )
