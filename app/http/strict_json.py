"""Strict JSON: what RFC 8259 leaves open is refused, and numbers keep every digit."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final, TypeAlias

from app.domain.errors import (
    MAX_VIOLATIONS,
    InvalidRequestError,
    UnreadableRequestError,
    Violation,
)
from app.http.json_pointer import child

JsonValue: TypeAlias = "bool | Decimal | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_DEPTH: Final = 64
"""How many objects and arrays may be nested in each other."""

MAX_EXPONENT: Final = 9_999
"""Numbers beyond 10^±9999 are read as that power: float64 ends at 10^308, so no rule can tell
the difference, and nobody's arithmetic meets an exponent that fills the memory."""

MAX_VALUES: Final = 200_000
"""How many objects and numbers a body may have: 10,000 entities with five changed keys each, and
their expected values, have fewer. Each takes some hundred bytes of memory while it is read."""

_SHOWN_CHARACTERS: Final = 80


def parse_object(body: bytes) -> JsonObject:
    """Read a JSON object in UTF-8; every number becomes a ``Decimal``.

    Lone surrogates that were written as escapes stay in the strings; the rules for names judge
    them.

    Raises:
        UnreadableRequestError: Not UTF-8, not JSON (``NaN`` and ``Infinity`` included), a
            repeated key at any level, nested too deeply, or not an object at the top.
        InvalidRequestError: More objects and numbers than any request needs.
    """
    value = parse_json(body)
    if not isinstance(value, dict):
        raise _unreadable("wrong-type", "The body must be a JSON object.")
    return value


def parse_json(body: bytes) -> JsonValue:
    """Read any JSON value; else as ``parse_object``."""
    text = _decoded(body)
    if _nested_too_deeply(body):
        raise _unreadable("nested-too-deeply", _TOO_DEEP)
    parser = _Parser()
    try:
        value: Any = json.loads(
            text,
            object_pairs_hook=parser.read_object,
            parse_float=parser.read_number,
            parse_int=parser.read_number,
            parse_constant=parser.read_literal,
        )
    except RecursionError:
        raise _unreadable("nested-too-deeply", _TOO_DEEP) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        fault = error.msg.removesuffix(" at")
        raise _unreadable("not-json", f"The body is not JSON: {fault} at {place}.") from None
    if parser.flawed:
        violations = list(islice(_flaws(value, ""), MAX_VIOLATIONS + 1))
        raise UnreadableRequestError(_FLAWED, violations=violations)
    return value  # type: ignore[no-any-return]


_TOO_DEEP: Final = f"The body nests more than {MAX_DEPTH} objects and arrays in each other."
_TOO_MANY: Final = (
    f"The body has over {MAX_VALUES} objects and numbers; a request takes 10,000 entities and "
    "10,000 changed keys."
)
_FLAWED: Final = "The body cannot be read without guessing."


@dataclass(slots=True)
class _RepeatedKeys:
    """Stands in for an object that names a key twice."""

    pairs: list[tuple[str, Any]]


@dataclass(slots=True)
class _Literal:
    """Stands in for NaN, Infinity or -Infinity."""

    text: str


@dataclass(slots=True)
class _Parser:
    flawed: bool = field(default=False)
    left: int = MAX_VALUES

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InvalidRequestError(
                _TOO_MANY, violations=[Violation("", "too-many-changes", _TOO_MANY)]
            )

    def read_number(self, text: str) -> Decimal:
        self._count()
        return _number(text)

    def read_object(self, pairs: list[tuple[str, Any]]) -> Any:
        self._count()
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self.flawed = True
        return _RepeatedKeys(pairs)

    def read_literal(self, text: str) -> _Literal:
        self.flawed = True
        return _Literal(text)


def _flaws(value: Any, pointer: str) -> Iterator[Violation]:
    match value:
        case _Literal(text):
            detail = f"{text} is not JSON; a number is finite."
            yield Violation(pointer, "not-json", detail)
        case _RepeatedKeys(pairs):
            yield from _repetitions(pairs, pointer)
            for name, member in pairs:
                yield from _flaws(member, child(pointer, name))
        case dict():
            for name, member in value.items():
                yield from _flaws(member, child(pointer, name))
        case list():
            for index, item in enumerate(value):
                yield from _flaws(item, child(pointer, index))


def _repetitions(pairs: list[tuple[str, Any]], pointer: str) -> Iterator[Violation]:
    seen: set[str] = set()
    reported: set[str] = set()
    for name, _ in pairs:
        if name in seen and name not in reported:
            reported.add(name)
            detail = f"The key {shown(name)} is given more than once."
            yield Violation(child(pointer, name), "duplicate-json-key", detail)
        seen.add(name)


def shown(text: str) -> str:
    """Quote text of the caller's for a sentence, shortened where it is long."""
    short = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return repr(short)


def _decoded(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        detail = f"The body is not UTF-8: byte {error.start} cannot be read."
        raise _unreadable("not-utf-8", detail) from None
    if not text.strip():
        raise _unreadable("not-json", "The body is not JSON: it is empty.")
    if text.startswith("\ufeff"):
        raise _unreadable("not-json", "The body begins with a byte order mark; leave it out.")
    return text


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return _beyond(text, shrinking="e-" in text.lower())
    if abs(number.adjusted()) <= MAX_EXPONENT:
        return number
    return _beyond(text, shrinking=number.adjusted() < 0)


def _beyond(text: str, *, shrinking: bool) -> Decimal:
    sign = "-" if text.startswith("-") else ""
    mantissa = text.lower().partition("e")[0]
    if not mantissa.strip("-0."):
        return Decimal(f"{sign}0")
    return Decimal(f"{sign}1e{-MAX_EXPONENT if shrinking else MAX_EXPONENT}")


_AS_BRACES: Final = bytes.maketrans(b"[]", b"{}")
_OTHER_BYTES: Final = bytes(set(range(256)) - set(b'[]{}"'))


def _nested_too_deeply(body: bytes) -> bool:
    """Measure the nesting without recursion and without a loop over the characters.

    What is left of the brackets once the strings are gone loses its innermost level in each
    round. Brackets that do not match are left to the parser.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = unescaped.translate(_AS_BRACES, _OTHER_BYTES)
    brackets = b"".join(marks.split(b'"')[::2])
    for _ in range(MAX_DEPTH):
        outer = brackets.replace(b"{}", b"")
        if len(outer) == len(brackets):
            return False
        brackets = outer
    return bool(brackets)


def _unreadable(code: str, detail: str) -> UnreadableRequestError:
    return UnreadableRequestError(detail, violations=[Violation("", code, detail)])
