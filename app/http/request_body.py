"""The body of a request: received within limits, read strictly, and tied to an earlier one."""

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Annotated, Any, Final

from fastapi import Depends
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from app.domain.errors import QuotaError, UnreadableRequestError
from app.http.errors import BodyTooLargeError, RequestTimeoutError, UnsupportedMediaTypeError
from app.http.guards import begin_work, services_of
from app.http.headers import KEY_HEADER, SUPERSEDE_HEADER, bad_header
from app.http.middleware import context_of
from app.http.rate_limits import BodySlot
from app.http.validation import JsonValue, parse_object, validated
from app.service.auth.denials import NOTHING_READ, RequestedChange
from app.service.ports.alterations import IdempotencyKey

SMALL_BYTES: Final = 16 * 1024
"""Bodies up to this size need no slot. Whoever waits for one holds that much, and the chunk that
passed it: what hundreds of large bodies at a time add up to."""

VERY_LARGE_BYTES: Final = 1024 * 1024
"""Over this size, or of unknown size, a body is very large."""


MAX_BODY_BYTES: Final = 8 * 1024 * 1024
BODY_DEADLINE_S: Final = 30.0
"""The body must be here that many seconds after its reading began."""

MIN_BYTES_PER_S: Final = 256 * 1024
"""How fast a body must come that holds one of the few slots: 8 MiB in 32 s."""

_GRACE_S: Final = 2.0


async def read_json_body(
    request: Request,
    slot: BodySlot | None = None,
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
    request: Request, limit: int, slot: BodySlot | None, deadline: asyncio.Timeout
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


class JsonBody:
    """A dependency behind the guard: the body of a request, read strictly and validated.

    FastAPI itself would read a body before it solves the guard, with a parser that keeps the last
    of two equal keys.

    Args:
        model: What the body must be, and what the document says of it.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model

    async def __call__(self, request: Request) -> BaseModel:
        """Return the model; a large body waits for a slot, and is parsed in a thread.

        Raises:
            QuotaError: As ``read_json_body``, ``begin_work``, ``parse_object`` and ``validated``;
                or the caller may not any more what it might before the body came.
        """
        context, alters = context_of(request), request.scope["route"].guard.alters

        def read() -> BaseModel:
            document = parse_object(body)
            content = validated(self.model, document)
            if alters:
                request.scope["state"]["idempotency_key"] = key_of(request, document)
            return content

        async with BodySlot(services_of(request).limits.turns, context.principal or "") as slot:
            body = await read_json_body(request, slot)
            begin_work(request)
            is_small = len(body) <= SMALL_BYTES
            content = read() if is_small else await asyncio.to_thread(read)
        if context.confirm is not None:
            await context.confirm()
        return content


def key_of(request: Request, asked: Any) -> IdempotencyKey | None:
    """Return the request's ``Idempotency-Key`` with a fingerprint of what it asks.

    Raises:
        UnreadableRequestError: It cannot be one, or there are several.
    """
    route = " ".join((request.scope["route"].path, *request.path_params.values()))
    return read_key(request.headers, route, asked)


async def _key_of_body(request: Request) -> IdempotencyKey | None:
    key: IdempotencyKey | None = request.scope["state"]["idempotency_key"]
    return key


Key = Annotated[IdempotencyKey | None, Depends(_key_of_body)]
"""The key with a fingerprint of the body, behind which it stands."""


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


_MAX_DENIED_BODY_BYTES: Final = 16 * 1024
_DENIED_BODY_DEADLINE_S: Final = 1.0
"""What is read of a denied alteration for its row in the audit log: no more, and no longer."""


async def read_denied(
    read: Callable[[Request, bytes], RequestedChange], request: Request
) -> RequestedChange:
    """Return what a denied request asked for, as ``read`` has it of the request and its body."""
    try:
        body = b""
        if request.method != "DELETE":
            body = await read_json_body(
                request, limit=_MAX_DENIED_BODY_BYTES, deadline_s=_DENIED_BODY_DEADLINE_S
            )
        return await asyncio.to_thread(read, request, body)
    except QuotaError:
        return NOTHING_READ
