"""Bodies of requests: their limits, and strict JSON.

What RFC 8259 leaves open is refused, and numbers keep every digit.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from app.domain.errors import MAX_VIOLATIONS, InvalidRequestError, UnreadableRequestError, Violation
from app.domain.values import read_decimal
from app.http.errors import BodyTooLargeError, RequestTimeoutError, UnsupportedMediaTypeError
from app.http.models import child, quote

JsonValue: TypeAlias = "bool | Decimal | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_VALUES: Final = 200_000
"""How many objects and numbers a body may have: 10,000 entities with five changed keys each, and
their expected values, have fewer. Each takes some hundred bytes of memory while it is read."""


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
    text = _decode(body)
    parser = _Parser()
    try:
        value: Any = json.loads(
            text,
            object_pairs_hook=parser.read_object,
            parse_float=parser.read_number,
            parse_int=parser.read_number,
            parse_constant=parser.read_literal,
        )
        flaws = list(islice(_flaws(value, ""), MAX_VIOLATIONS + 1)) if parser.flawed else []
    except RecursionError:
        detail = "The body nests too many objects and arrays in each other."
        raise _unreadable("nested-too-deeply", detail) from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        fault = error.msg.removesuffix(" at")
        raise _unreadable("not-json", f"The body is not JSON: {fault} at {position}.") from None
    if flaws:
        raise UnreadableRequestError(_FLAWED, violations=flaws)
    return value  # type: ignore[no-any-return]


_TOO_MANY: Final = (
    f"The body has over {MAX_VALUES} objects and numbers; a request takes 10,000 entities and "
    "10,000 changed keys."
)
_FLAWED: Final = "The body cannot be read without guessing; correct all that errors list."


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
        return read_decimal(text)

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
    for name, number in Counter(name for name, _ in pairs).items():
        if number > 1:
            detail = f"The key {quote(name)} is there more than once; send it once."
            yield Violation(child(pointer, name), "duplicate-json-key", detail)


def _decode(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        detail = f"The body is not UTF-8: byte {error.start} cannot be read. Send UTF-8."
        raise _unreadable("not-utf-8", detail) from None
    if not text.strip():
        raise _unreadable("not-json", "The body is not JSON: it is empty.")
    if text.startswith("\ufeff"):
        raise _unreadable("not-json", "The body begins with a byte order mark; leave it out.")
    return text


def _unreadable(code: str, detail: str) -> UnreadableRequestError:
    return UnreadableRequestError(detail, violations=[Violation("", code, detail)])


SMALL_BYTES: Final = 16 * 1024
"""Bodies up to this size need no slot. Whoever waits for one holds that much, and the chunk that
passed it: what hundreds of large bodies at a time add up to."""

VERY_LARGE_BYTES: Final = 1024 * 1024
"""Over this size, or of unknown size, a body is very large."""


class Slot(Protocol):
    """What a body that is not small waits for."""

    async def take(self, *, very_large: bool) -> None:
        """Wait for it."""


MAX_BODY_BYTES: Final = 8 * 1024 * 1024
BODY_DEADLINE_S: Final = 30.0
"""The body must be here that many seconds after its reading began."""

MIN_BYTES_PER_S: Final = 256 * 1024
"""How fast a body must come that holds one of the few slots: 8 MiB in 32 s."""

_GRACE_S: Final = 2.0


async def read_json_body(
    request: Request,
    slot: Slot | None = None,
    *,
    limit: int = MAX_BODY_BYTES,
    deadline_s: float = BODY_DEADLINE_S,
) -> bytes:
    """Read the body of a request that must be JSON. Call it once the caller is authorized.

    Args:
        request: Nothing of its body was read yet.
        slot: Taken by a body that is not small, which must then come quickly; waiting for it
            counts as reading.
        limit: How many bytes it may have.
        deadline_s: When it must be here, in seconds.

    Raises:
        UnsupportedMediaTypeError: Not ``application/json`` in UTF-8, or compressed.
        BodyTooLargeError: Over ``limit`` bytes, reported before it is read where possible.
        RequestTimeoutError: Not here within ``deadline_s`` seconds, or slower than
            ``MIN_BYTES_PER_S`` while it holds a slot.
        UnreadableRequestError: The caller went away before the end.
    """
    _refuse_other_media(request.headers)
    if limit < _content_length(request) < math.inf:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            return await _receive(request, limit, slot, deadline)
    except TimeoutError:
        detail = (
            f"The body was not here within {deadline_s:g} s, or came too slowly; send it again."
        )
        raise RequestTimeoutError(detail) from None
    except ClientDisconnect:
        detail = "The connection was closed before the end of the body; send the request again."
        raise UnreadableRequestError(detail, code="incomplete-body") from None


async def _receive(
    request: Request, limit: int, slot: Slot | None, deadline: asyncio.Timeout
) -> bytes:
    received = bytearray()
    began: float | None = None
    clock, latest = asyncio.get_running_loop().time, deadline.when() or math.inf
    async for chunk in request.stream():
        received += chunk
        if len(received) > limit:
            raise _too_large(limit)
        if slot is not None and began is None and len(received) > SMALL_BYTES:
            await slot.take(very_large=_content_length(request) > VERY_LARGE_BYTES)
            began = clock()
        if began is not None:
            in_time = began + _GRACE_S + len(received) / MIN_BYTES_PER_S
            deadline.reschedule(min(latest, in_time))
    return bytes(received)


def _content_length(request: Request) -> float:
    """Return how many bytes the body will have, as its header says; infinite without it."""
    length = request.headers.get("content-length", "")
    return int(length[:20]) if length.isdecimal() else math.inf


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body has over {limit} bytes; split the request.")


def _refuse_other_media(headers: Headers) -> None:
    encodings = headers.getlist("content-encoding")
    if any(encoding.strip().lower() not in {"", "identity"} for encoding in encodings):
        detail = "Compressed bodies are not read; send the body as it is."
        raise UnsupportedMediaTypeError(detail)
    types = headers.getlist("content-type")
    if len(types) != 1 or not _is_json(types[0]):
        detail = "Send the body as JSON in UTF-8: Content-Type: application/json."
        raise UnsupportedMediaTypeError(detail)


def _is_json(content_type: str) -> bool:
    media_type, *parameters = (item.strip().lower() for item in content_type.split(";"))
    charsets = [text for text in parameters if text.startswith("charset")]
    return media_type == "application/json" and all(
        charset in {"charset=utf-8", 'charset="utf-8"'} for charset in charsets
    )
