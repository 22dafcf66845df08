"""Headers of requests: media ranges, entity tags, and what ties two requests."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from operator import itemgetter
from typing import Any, Final

from starlette.datastructures import Headers

from app.domain.errors import UnreadableRequestError, Violation
from app.http.request_body import JsonValue
from app.service.ports.alterations import IdempotencyKey

_WEIGHT: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def best_match(accept: str | None, offered: Sequence[str]) -> str | None:
    """Return the offered media type that the caller likes best; null if none is acceptable.

    The most specific range decides about a type; among equals the first offered wins. Parameters
    other than ``q`` are ignored, and so is an element that is no media range.

    Args:
        accept: The header, several joined with commas; null or blank accepts everything.
        offered: Media types, the default first.
    """
    if accept is None or not accept.strip():
        return offered[0]
    weights = dict(sorted(_ranges(accept), key=itemgetter(1)))  # of a range twice the larger

    def weight(media_type: str) -> float:
        ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        return next((weights[name] for name in ranges if name in weights), 0.0)

    best = max(offered, key=weight)
    return best if weight(best) > 0 else None


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    for element in accept.split(","):
        name, *parameters = (text.strip().lower() for text in element.split(";"))
        kind, _, subtype = name.partition("/")
        weight = _quality(parameters)
        if kind and subtype and weight is not None:
            yield name, weight


def _quality(parameters: Sequence[str]) -> float | None:
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name.strip() == "q":
            return float(text) if _WEIGHT.fullmatch(text.strip()) else None
    return 1.0


def list_field(headers: Headers, name: str) -> str | None:
    """Return a field whose value is a list, its lines joined with commas; null if it is absent."""
    lines = headers.getlist(name)
    return ", ".join(lines) if lines else None


_ENTITY_TAG: Final = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_LIST: Final = re.compile(
    rf"[\s,]*{_ENTITY_TAG.pattern}(?:[ \t]*,[\s,]*{_ENTITY_TAG.pattern})*[\s,]*"
)


def names_tag(header: str | None, etag: str, *, strong: bool = False) -> bool:
    """Tell whether ``If-None-Match``, or ``If-Match`` with strong comparison, names the tag.

    ``*`` names every tag. A header that is no list of tags names none. Source: RFC 9110 13.1.
    """
    if header is None:
        return False
    if header.strip() == "*":
        return True
    tags = _ENTITY_TAG.findall(header) if _LIST.fullmatch(header) else []
    return any(tag == etag and not (strong and weak) for weak, tag in tags)


KEY_HEADER: Final = "Idempotency-Key"
SUPERSEDE_HEADER: Final = "Supersede"
REPLAYED_HEADER: Final = "Idempotent-Replayed"

LONGEST_KEY: Final = 255
_BLANKS: Final = " \t"
_PRINTABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_QUOTED: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ALTERATION_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def read_key(headers: Headers, route: str, body: JsonValue) -> IdempotencyKey | None:
    """Return the key with the fingerprint of what is asked, or null where there is none.

    Raises:
        UnreadableRequestError: Several keys, or one that is not 1-255 printable ASCII characters.
    """
    values = headers.getlist(KEY_HEADER)
    if not values:
        return None
    text = _unquote(values[0].strip(_BLANKS))
    if len(values) > 1 or not 1 <= len(text) <= LONGEST_KEY or not _PRINTABLE.fullmatch(text):
        detail = f"Give one {KEY_HEADER} of 1 to {LONGEST_KEY} printable ASCII characters."
        raise bad_header(KEY_HEADER, "bad-idempotency-key", detail)
    return IdempotencyKey(text, fingerprint(route, body))


def read_superseded(headers: Headers) -> str | None:
    """Return the id of the alteration that this one takes over from, or null.

    Raises:
        UnreadableRequestError: Not one alteration id.
    """
    values = headers.getlist(SUPERSEDE_HEADER)
    if not values:
        return None
    text = values[0].strip(_BLANKS).lower()
    if len(values) == 1 and _ALTERATION_ID.fullmatch(text):
        return text
    detail = f"{SUPERSEDE_HEADER} takes the id of one alteration."
    raise bad_header(SUPERSEDE_HEADER, "bad-supersede", detail)


def fingerprint(route: str, body: JsonValue) -> bytes:
    """Return the SHA-256 of what is asked.

    The order of members, blanks and the form of numbers do not count.
    """
    text = json.dumps([route, _canonical(body)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()


def _canonical(value: JsonValue) -> Any:
    """Mark numbers, so that 1, 1.0 and 1e0 are equal and "1" is not."""
    if isinstance(value, Decimal):
        return {"number": _number(value)}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, Mapping):
        return {"object": {name: _canonical(item) for name, item in value.items()}}
    return value


_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _number(value: Decimal) -> str:
    """Return one text for each value, exact to the last digit."""
    sign, digits, exponent = value.normalize(_EXACT).as_tuple()
    return f"{'-' * sign}{''.join(map(str, digits))}e{exponent}" if value else "0"


def _unquote(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text


def bad_header(header: str, code: str, detail: str) -> UnreadableRequestError:
    """Return the refusal of a header."""
    return UnreadableRequestError(detail, code=code, violations=[Violation(header, code, detail)])
