"""``GET /audit/stream``: the events of the audit log as they come, as Server-Sent Events."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request, Response
from starlette.responses import StreamingResponse

from app.domain.errors import QuotaError, UnreadableRequestError, Violation
from app.http.audit import AuditConditions, recording_denial
from app.http.guards import Granted, MayFollowAudit, services_of
from app.http.headers import LAST_EVENT_HEADER
from app.http.middleware import context_of
from app.http.query_params import StrictQuery
from app.http.responses import problems, reference, text_answer
from app.http.route import feature_router
from app.service.event_feed import EventFeed, selects
from app.service.ports.audit_log import AuditQuery
from app.service.ports.events import LoggedEvent, LogPosition

router = feature_router("audit")

_COMMENT_EVERY_S: Final = 15.0
_CHUNK_BYTES: Final = 16 * 1024
_MEDIA_TYPE: Final = "text/event-stream"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Nobody in between may keep the stream, or hold it back: nginx would fill a buffer first."""

_FIRST: Final = b"retry: 2000\n: events of the audit log follow\n\n"
_COMMENT: Final = b": nothing new\n\n"


@router.get(
    "/audit/stream",
    summary="Follow the audit log",
    response_class=Response,
    responses={
        200: text_answer("Server-Sent Events.", _MEDIA_TYPE, "audit-stream"),
        **problems(),
    },
    openapi_extra={"parameters": [reference(LAST_EVENT_HEADER, "parameters")]},
)
async def follow_audit(
    request: Request,
    granted: MayFollowAudit,
    query: Annotated[AuditConditions, Depends(StrictQuery(AuditConditions))],
) -> Response:
    """Send each event of the audit log once it is recorded, with the rights of `GET /audit`.

    `data` is the row as `GET /audit` would have it then: an alteration has one when it is
    recorded, `outcome` `unknown`, and one when its outcome is. `id` names the event; whoever
    connects again with it as `Last-Event-ID` gets what came after. Without one the stream begins
    with what comes next, or where `since` is set, with what began then. Rows of one entity come in
    the order of the cluster. A comment comes every 15 seconds. The stream ends when the caller
    loses the right, does not read for a minute, or the service stops.
    """
    services, context, feed = services_of(request), context_of(request), services_of(request).feed
    caller = granted.actor.caller
    last_event = _last_event_of(request)
    async with recording_denial(request, granted):
        conditions = services.audit.visible(caller, query.asked())
    services.limits.begin_stream(caller.principal, context.held)
    await feed.join(context.held)
    begin = await feed.start(last_event, conditions.since)
    if begin is None:
        raise _no_such_event()
    if context.is_head:
        return Response(media_type=_MEDIA_TYPE, headers=_HEADERS)
    stream = Stream(feed, conditions, granted, begin)
    return StreamingResponse(stream.chunks(), media_type=_MEDIA_TYPE, headers=_HEADERS)


def _last_event_of(request: Request) -> str | None:
    texts = request.headers.getlist(LAST_EVENT_HEADER)
    if len(texts) > 1:
        raise _no_such_event()
    return texts[0] if texts and texts[0] else None


def _no_such_event() -> UnreadableRequestError:
    detail = f"{LAST_EVENT_HEADER} is no event of this log. Connect without it, or with since."
    violation = Violation(LAST_EVENT_HEADER.lower(), "bad-last-event-id", detail)
    return UnreadableRequestError(detail, violations=[violation])


@dataclass(frozen=True, slots=True)
class Stream:
    """One listener. Nothing is kept for it but its position and the chunk that it is sent."""

    feed: EventFeed
    query: AuditQuery
    granted: Granted
    begin: LogPosition

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what is sent, until the caller may not read it any more or the service stops."""
        loop = asyncio.get_running_loop()
        after, comment_at = self.begin, loop.time() + _COMMENT_EVERY_S
        yield _FIRST
        while (page := await self.feed.next(after, comment_at - loop.time())) is not None:
            if not await self._still_may():
                return
            after = page.reached
            for chunk in _chunks(self._texts(page.events)):
                yield chunk
            if loop.time() >= comment_at:
                comment_at = loop.time() + _COMMENT_EVERY_S
                yield _COMMENT

    async def _still_may(self) -> bool:
        try:
            await self.granted.confirm((), None)
        except QuotaError:
            return False  # whoever connects again is told why
        return True

    def _texts(self, events: Iterable[LoggedEvent]) -> Iterator[bytes]:
        for event in events:
            if selects(self.query, event.row):
                yield b"id: %b\ndata: %b\n\n" % (event.id.encode(), event.document)


def _chunks(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Join texts: whoever does not read holds one chunk, however much has come."""
    chunk = bytearray()
    for text in texts:
        chunk += text
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)
