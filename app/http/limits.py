"""Limits on what is read from a connection, before anybody looks at the content."""

import asyncio
import math
import re
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from app.domain.errors import UnreadableRequestError, Violation
from app.http.errors import (
    BodyTooLargeError,
    HeadersTooLargeError,
    RequestTimeoutError,
    UnsupportedMediaTypeError,
)
from app.http.large_bodies import SMALL_BYTES, VERY_LARGE_BYTES, BodySlot

MAX_HEADER_BYTES: Final = 32 * 1024
"""The path, the query and all headers together, in bytes."""

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
BODY_DEADLINE_S: Final = 30.0
"""The body must be here that many seconds after its reading began."""

MIN_BYTES_PER_S: Final = 256 * 1024
"""How fast a body must come that holds one of the few slots: 8 MiB in 32 s."""

_GRACE_S: Final = 2.0
_LINE_OVERHEAD_BYTES: Final = 4


def refuse_bad_headers(scope: Scope) -> None:
    """Refuse headers that are too large or that two readers could understand differently.

    Raises:
        HeadersTooLargeError: Over 32 KiB in all.
        UnreadableRequestError: Several credentials, or a body whose end is ambiguous.
    """
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    judged: list[tuple[bytes, bytes]] = []
    for pair in scope["headers"]:
        name, value = pair
        size += len(name) + len(value) + _LINE_OVERHEAD_BYTES
        if name in _JUDGED:
            judged.append(pair)
    if size > MAX_HEADER_BYTES:
        detail = f"The path, the query and the headers have over {MAX_HEADER_BYTES} bytes."
        raise HeadersTooLargeError(detail)
    _refuse_ambiguous(judged)


def _refuse_ambiguous(judged: Sequence[tuple[bytes, bytes]]) -> None:
    credentials = [value for name, value in judged if name == _AUTHORIZATION]
    if len(credentials) > 1 or any(b"," in one and _are_joined(one) for one in credentials):
        raise _unreadable("authorization", "several-credentials", _SEVERAL_CREDENTIALS)
    names = [name for name, _ in judged]
    if len(names) == len(credentials):
        return
    lengths = names.count(_CONTENT_LENGTH)
    if lengths > 1 or (lengths and _TRANSFER_ENCODING in names):
        raise _unreadable("content-length", "ambiguous-length", _AMBIGUOUS_LENGTH)


def _are_joined(credentials: bytes) -> bool:
    return _JOINED_CREDENTIALS.search(credentials.decode("latin-1")) is not None


_AUTHORIZATION: Final = b"authorization"
_CONTENT_LENGTH: Final = b"content-length"
_TRANSFER_ENCODING: Final = b"transfer-encoding"
_JUDGED: Final = frozenset({_AUTHORIZATION, _CONTENT_LENGTH, _TRANSFER_ENCODING})

_JOINED_CREDENTIALS: Final = re.compile(r"(?<![^\s,])[^\s,]++ ++[^\s,]++ *+, *+[^\s,]++ ++[^\s,]")
"""Two credentials in one header, as a proxy may join them.

Possessive and from the beginning of a word: a long header takes no longer than its length.
"""

_SEVERAL_CREDENTIALS: Final = "Give exactly one Authorization header."
_AMBIGUOUS_LENGTH: Final = "Give one Content-Length, and none with Transfer-Encoding."


def _unreadable(header: str, code: str, detail: str) -> UnreadableRequestError:
    return UnreadableRequestError(detail, code=code, violations=[Violation(header, code, detail)])


async def read_json_body(
    request: Request,
    slot: BodySlot | None = None,
    *,
    limit: int = MAX_BODY_BYTES,
    deadline_s: float = BODY_DEADLINE_S,
) -> bytes:
    """Read the body of a request that must be JSON. Call it once the caller's rights are known.

    Args:
        request: Nothing of its body was read yet.
        slot: Taken by a body that is not small, which must then come quickly; waiting for it
            counts as reading.
        limit: How many bytes it may have.
        deadline_s: When it must be here, in seconds.

    Raises:
        UnsupportedMediaTypeError: Not ``application/json`` in UTF-8, or compressed.
        BodyTooLargeError: Over ``limit`` bytes, told before it is read where possible.
        RequestTimeoutError: Not here within ``deadline_s`` seconds, or slower than
            ``MIN_BYTES_PER_S`` while it holds a slot.
        UnreadableRequestError: The caller went away before the end.
    """
    _refuse_other_media(request.headers)
    if limit < _announced(request) < math.inf:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            return await _received(request, limit, slot, deadline)
    except TimeoutError:
        detail = f"The body did not arrive within {deadline_s:g} seconds, or came too slowly."
        raise RequestTimeoutError(detail) from None
    except ClientDisconnect:
        detail = "The connection was closed before the end of the body."
        raise UnreadableRequestError(detail, code="incomplete-body") from None


async def _received(
    request: Request, limit: int, slot: BodySlot | None, deadline: asyncio.Timeout
) -> bytes:
    received = bytearray()
    began: float | None = None
    clock, latest = asyncio.get_running_loop().time, deadline.when() or math.inf
    more = True
    while more:
        more = await _receive_into(received, request)
        if len(received) > limit:
            raise _too_large(limit)
        if slot is not None and began is None and len(received) > SMALL_BYTES:
            await slot.take(very_large=_announced(request) > VERY_LARGE_BYTES)
            began = clock()
        if began is not None:
            in_time = began + _GRACE_S + len(received) / MIN_BYTES_PER_S
            deadline.reschedule(min(latest, in_time))
    return bytes(received)


def _announced(request: Request) -> float:
    """Return how many bytes the body will have, as its header says; infinite without it."""
    length = request.headers.get("content-length", "")
    return int(length[:20]) if length.isdecimal() else math.inf


async def _receive_into(received: bytearray, request: Request) -> bool:
    """Add a chunk of the body and tell whether more follows."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    received += message.get("body", b"")
    return bool(message.get("more_body", False))


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
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [text for text in parameters if text.startswith("charset")]
    return media_type == "application/json" and all(
        charset in {"charset=utf-8", 'charset="utf-8"'} for charset in charsets
    )
