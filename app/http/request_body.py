"""Bodies of requests: their limits, and slots for the large ones."""

import asyncio
import math
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from app.domain.errors import UnreadableRequestError
from app.http.errors import (
    BodyTooLargeError,
    RequestTimeoutError,
    UnsupportedMediaTypeError,
)

SMALL_BYTES: Final = 16 * 1024
"""Bodies up to this size need no slot. Whoever waits for one holds that much, and the chunk that
passed it: what hundreds of large bodies at a time add up to."""

AT_ONCE: Final = 4
VERY_LARGE_BYTES: Final = 1024 * 1024
"""Over this size, or of unknown size; at the least rate of bodies others hold a slot for 6 s."""

VERY_LARGE_AT_ONCE: Final = 3


class LargeBodies:
    """Lets callers wait until a slot is free; a caller's own bodies come one after the other."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.very_large_slots = asyncio.Semaphore(VERY_LARGE_AT_ONCE)
        self.queues: dict[str, _Queue] = {}

    def slot(self, principal: str) -> "BodySlot":
        """Return the slot of one request; it is free again when its block ends."""
        return BodySlot(self, principal)


class BodySlot:
    """Taken by a body once it proves to be large; held until it is parsed."""

    def __init__(self, bodies: LargeBodies, principal: str) -> None:
        self._bodies = bodies
        self._principal = principal
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._held.aclose()

    async def take(self, *, very_large: bool = False) -> None:
        """Wait for the slot."""
        queues = self._bodies.queues
        slots = self._bodies.very_large_slots if very_large else self._bodies.slots
        own = queues.setdefault(self._principal, _Queue())
        own.members += 1
        self._held.callback(self._leave, own)
        await self._held.enter_async_context(own.lock)
        await self._held.enter_async_context(slots)

    def _leave(self, own: "_Queue") -> None:
        own.members -= 1
        if not own.members:
            del self._bodies.queues[self._principal]


class _Queue:
    """The bodies of one caller: those that wait and the one that is read."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0


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
