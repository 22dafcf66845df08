"""Headers of requests and answers: media ranges, entity tags, names."""

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from starlette.datastructures import Headers

from app.domain.errors import UnreadableRequestError, Violation

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
LAST_EVENT_HEADER: Final = "Last-Event-ID"


def bad_header(header: str, code: str, detail: str) -> UnreadableRequestError:
    """Return the refusal of a header."""
    return UnreadableRequestError(detail, code=code, violations=[Violation(header, code, detail)])
