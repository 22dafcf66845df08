"""Requests for a further page go to the worker that keeps the answer which pages are cut from."""

import logging
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.page_tokens import PageTokens
from app.http.workers.carried import headers_to_answer, headers_to_send
from app.http.workers.team import Team
from app.http.workers.ways import way_to

_PATH: Final = "/quotas"
_TIMEOUTS: Final = {"connect": 1.0, "write": 5.0, "read": 30.0, "pool": 5.0}

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have another worker answer."""
        home = self._home_of(scope) if scope["type"] == "http" else None
        if home is None or not await _handed_on(self._team.socket_of(home), scope, send):
            await self._app(scope, receive, send)

    def _home_of(self, scope: Scope) -> int | None:
        """Return the other worker that a page token names; what it names is not proven yet."""
        query = scope["query_string"]
        if scope["path"] != _PATH or scope["method"] != "GET" or b"page_token=" not in query:
            return None
        given = parse_qs(query.decode("latin-1")).get("page_token", [])
        if len(given) != 1:
            return None
        home, dot, _ = str(PageTokens.peek(given[0]).get("snapshot")).partition(".")
        others = {str(number): number for number in self._team.others()}
        return others.get(home) if dot else None


async def _handed_on(path: Path, scope: Scope, send: Send) -> bool:
    """Have a worker answer; tell whether it did."""
    target = scope["raw_path"] + b"?" + scope["query_string"]
    request = httpx.Request(
        scope["method"],
        "http://worker/",
        headers=headers_to_send(scope),
        extensions={"target": target, "timeout": _TIMEOUTS},
    )
    async with way_to(path) as way:
        try:
            answer = await way.handle_async_request(request)
        except httpx.TransportError as error:
            logger.warning("a page is not to be had from its worker: %r", error)
            return False
        await _pass_through(answer, send)
    return True


async def _pass_through(answer: httpx.Response, send: Send) -> None:
    headers = headers_to_answer(answer.headers.raw)
    start = {"type": "http.response.start", "status": answer.status_code, "headers": headers}
    try:
        await send(start)
        async for piece in answer.aiter_raw():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await answer.aclose()
