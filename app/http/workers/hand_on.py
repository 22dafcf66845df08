"""Requests for a further page go to the worker that keeps the answer which pages are cut from."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.page_tokens import PageTokens
from app.http.workers.carried import RawHeaders, headers_to_answer, headers_to_send
from app.http.workers.team import Team
from app.http.workers.ways import way_to

_PATH: Final = "/quotas"
_METHODS: Final = frozenset({"GET", "HEAD"})
AT_ONCE: Final = 16
"""So many requests a worker hands on at a time: each takes a file of both, and room for a page."""

_TIMEOUTS: Final = {"connect": 1.0, "write": 5.0, "read": 10.0, "pool": 5.0}

logger = logging.getLogger(__name__)


class HandOn:
    """Stands before everything else: the other worker authenticates, limits, counts and logs.

    Where the other worker has ended, or does not answer, this one answers by itself: it keeps no
    such answer, so the token is too old.

    Args:
        app: Answers everything that is not handed on.
        team: The workers; which of them this is, is known when requests come.
    """

    def __init__(self, app: ASGIApp, team: Team) -> None:
        self._app = app
        self._team = team
        self._room = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have another worker answer."""
        home = self._home_of(scope) if scope["type"] == "http" else None
        answer = None
        if home is not None:
            async with self._room:
                answer = await _answer_of(self._team.socket_of(home), scope)
        if answer is None:
            await self._app(scope, receive, send)
        else:
            await answer.send(send)

    def _home_of(self, scope: Scope) -> int | None:
        """Return the other worker that a page token names; what it names is not proven yet."""
        query = scope["query_string"]
        if scope["path"] != _PATH or scope["method"] not in _METHODS:
            return None
        if b"page_token=" not in query:
            return None
        given = parse_qs(query.decode("latin-1")).get("page_token", [])
        if len(given) != 1:
            return None
        home, dot, _ = str(PageTokens.peek(given[0]).get("snapshot")).partition(".")
        others = {str(number): number for number in self._team.others()}
        return others.get(home) if dot else None


@dataclass(frozen=True, slots=True)
class _Answer:
    """A page, all of it: whoever reads it slowly holds up no other."""

    status: int
    headers: RawHeaders
    body: bytes

    async def send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


async def _answer_of(path: Path, scope: Scope) -> _Answer | None:
    """Return what another worker answers; null where it does not."""
    target = scope["raw_path"] + b"?" + scope["query_string"]
    request = httpx.Request(
        scope["method"],
        "http://worker/",
        headers=headers_to_send(scope),
        extensions={"target": target, "timeout": _TIMEOUTS},
    )
    try:
        async with way_to(path) as way:
            answer = await way.handle_async_request(request)
            body = b"".join([piece async for piece in answer.aiter_raw()])
            return _Answer(answer.status_code, headers_to_answer(answer.headers.raw), body)
    except httpx.TransportError as error:
        logger.warning("a page is not to be had from its worker: %r", error)
        return None
