"""Query strings, read strictly."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

from app.domain.errors import InvalidRequestError, UnreadableRequestError, Violation
from app.domain.filters import filter_violations
from app.http.filter_query import parse_filter, unreadable_components
from app.http.query_parameters import Kind, QueryParameter
from app.http.strict_json import shown
from app.http.times import read_time

N = TypeVar("N", int, float)

QueryValues = Mapping[str, Any]
"""Every parameter of the table by name: str, bool, int, float, datetime in UTC, a tuple of str
where it repeats, or the default."""


def read_query(query_string: bytes, parameters: Sequence[QueryParameter]) -> QueryValues:
    """Read a query string as it came over the wire.

    Raises:
        UnreadableRequestError: Escapes that are not UTF-8, unknown parameters, a repeated single
            one, text that is not of the parameter's kind; every one of them.
        InvalidRequestError: A number out of range or an unknown word; every one of them, and with
            them what a broker would refuse in a filter. That alone is judged by who asks it.
    """
    given: dict[str, list[str]] = {}
    unreadable: list[Violation] = []
    for name, text in _pairs(query_string, unreadable):
        given.setdefault(name, []).append(text)
    values: dict[str, Any] = {}
    misread: list[Violation] = []
    broken: list[Violation] = []
    in_place = 0
    for parameter in parameters:
        name = parameter.name
        texts = given.get(name)
        if parameter.repeats:
            values[name] = _all(texts or (), parameter, misread)
            in_place += texts is not None
        elif texts is None:
            values[name] = parameter.default
        else:
            values[name] = _read(texts[0], parameter, misread, broken)
            in_place += len(texts) == 1
    if in_place < len(given):
        unreadable.extend(_misplaced(given, parameters))
    unreadable.extend(misread)
    if unreadable:
        raise UnreadableRequestError("The query cannot be read.", violations=unreadable)
    if broken:
        broken.extend(_refused_by_brokers(values, parameters))
        raise InvalidRequestError("The query breaks a rule.", violations=broken)
    return values


def _refused_by_brokers(
    values: QueryValues, parameters: Sequence[QueryParameter]
) -> Iterator[Violation]:
    for parameter in parameters:
        if parameter.kind is Kind.COMPONENT:
            name = parameter.name
            yield from filter_violations(parse_filter(values[name], parameter=name), name)


_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def _pairs(query_string: bytes, unreadable: list[Violation]) -> Iterable[tuple[str, str]]:
    """Return the names and texts; note what cannot be read."""
    if query_string.isascii() and b"%" not in query_string and b"+" not in query_string:
        parts = query_string.decode("ascii").split("&")
        return [(part[0], part[2]) for part in [one.partition("=") for one in parts if one]]
    return _decoded_pairs(query_string, unreadable)


def _decoded_pairs(query_string: bytes, unreadable: list[Violation]) -> Iterator[tuple[str, str]]:
    for part in query_string.split(b"&"):
        if not part:
            continue
        raw_name, _, raw_text = part.partition(b"=")
        name, text = _decoded(raw_name), _decoded(raw_text)
        if name is None or text is None:
            place = name or raw_name.decode("ascii", "backslashreplace")
            detail = "The percent-encoding is not that of UTF-8 text."
            unreadable.append(Violation(place, "bad-percent-encoding", detail))
        else:
            yield name, text


def _decoded(raw: bytes) -> str | None:
    if _BAD_ESCAPE.search(raw):
        return None
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        return None


def _misplaced(
    given: Mapping[str, list[str]], parameters: Sequence[QueryParameter]
) -> Iterator[Violation]:
    table = {parameter.name: parameter for parameter in parameters}
    for name, texts in given.items():
        if name not in table:
            known = ", ".join(table) or "none"
            detail = f"Unknown parameter {shown(name)}; known are: {known}."
            yield Violation(name, "unknown-parameter", detail)
        elif len(texts) > 1 and not table[name].repeats:
            detail = f"{name} is given {len(texts)} times; give it once."
            yield Violation(name, "repeated-parameter", detail)


def _all(
    texts: Sequence[str], parameter: QueryParameter, unreadable: list[Violation]
) -> tuple[str, ...]:
    if parameter.kind is Kind.COMPONENT:
        unreadable.extend(unreadable_components(texts, parameter.name))
    return tuple(texts)


def _read(
    text: str, parameter: QueryParameter, unreadable: list[Violation], broken: list[Violation]
) -> str | bool | float | datetime | None:
    match parameter.kind:
        case Kind.TEXT:
            return text
        case Kind.BOOLEAN if text in {"true", "false"}:
            return text == "true"
        case Kind.INTEGER if _INTEGER.fullmatch(text):
            return _bounded(text, parameter, broken)
        case Kind.NUMBER if _NUMBER.fullmatch(text):
            return _within(float(text), parameter, broken)
        case Kind.TIME:
            return _time(text, parameter, unreadable)
        case Kind.WORD:
            if text not in parameter.words:
                words = ", ".join(parameter.words)
                allowed = f"one of {words}" if len(parameter.words) > 1 else f"{words} or left out"
                detail = f"{shown(text)} is unknown; {parameter.name} is {allowed}."
                broken.append(Violation(parameter.name, "unknown-word", detail))
            return text
    detail = f"{parameter.name} must be {_FORMS[parameter.kind]}, not {shown(text)}."
    unreadable.append(Violation(parameter.name, "wrong-type", detail))
    return None


_INTEGER: Final = re.compile("-?[0-9]+")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_FORMS: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "true or false",
    Kind.INTEGER: "a whole number in digits",
    Kind.NUMBER: "a number such as 0.8",
}
_LONGEST_INTEGER: Final = 20


def _bounded(text: str, parameter: QueryParameter, broken: list[Violation]) -> int:
    digits = text.lstrip("-0") or "0"
    number = int(digits) if len(digits) <= _LONGEST_INTEGER else parameter.maximum + 1
    return _within(-number if text.startswith("-") else number, parameter, broken)


def _within(number: N, parameter: QueryParameter, broken: list[Violation]) -> N:
    if not parameter.minimum <= number <= parameter.maximum:
        bounds = f"from {parameter.minimum} to {parameter.maximum}"
        detail = f"{parameter.name} must be {bounds}."
        broken.append(Violation(parameter.name, "out-of-range", detail))
    return number


def _time(text: str, parameter: QueryParameter, unreadable: list[Violation]) -> datetime | None:
    try:
        return read_time(text)
    except ValueError:
        detail = (
            f"{parameter.name} must be a time such as 2026-11-21T01:02:03.456Z "
            f"(a plus sign is written %2B), not {shown(text)}."
        )
        unreadable.append(Violation(parameter.name, "wrong-type", detail))
        return None
