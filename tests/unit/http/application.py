"""A small application behind the boundary, and a caller who sends exactly what is asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message

from app.domain.entities import Caller
from app.domain.errors import QuotaError
from app.http import pages
from app.http.application import install_problem_handlers
from app.http.authentication.proxies import NO_PROXIES
from app.http.encoding import JsonResponse
from app.http.metrics import HttpMetrics
from app.http.middleware import RequestMiddleware, context_of
from app.http.rate_limits import Limits, RateLimits
from app.http.request_body import parse_object, read_json_body

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


routes = APIRouter()


@routes.get("/raise/{index}")
@routes.post("/raise/{index}")
async def raise_error(request: Request, index: int) -> None:
    raise request.app.state.errors[index]


@routes.post("/echo")
async def echo(request: Request) -> Response:
    return JsonResponse(list(parse_object(await read_json_body(request))))


@routes.get("/echo")
async def describe_echo() -> Response:
    return Response(b"", headers={"ETag": '"a"'})


@routes.get("/whoami")
async def whoami(request: Request) -> Response:
    context_of(request).caller = Caller("User:alice", "127.0.0.1", "bearer-token")
    return JsonResponse({"request_id": request.state.request_id})


async def two_chunks() -> AsyncIterator[bytes]:
    yield b"begun"
    yield b"done"


async def broken_chunks() -> AsyncIterator[bytes]:
    yield b"begun"
    raise QuotaError("too late")


@routes.get("/stream")
async def stream() -> Response:
    return StreamingResponse(two_chunks())


@routes.get("/broken-stream")
async def broken_stream() -> Response:
    return StreamingResponse(broken_chunks())


@routes.get("/never")
async def never() -> None:
    await asyncio.Event().wait()


def application(errors: Sequence[Exception] = ()) -> FastAPI:
    """Return an application whose route ``/raise/{index}`` raises one of the errors."""
    app = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.errors = errors
    unlimited = RateLimits(Limits(0, 0, 0, 0))
    app.state.services = SimpleNamespace(proxies=NO_PROXIES, limits=unlimited)
    install_problem_handlers(app)
    app.include_router(pages.router)
    app.include_router(routes)
    return app


def around(metrics: HttpMetrics, errors: Sequence[Exception] = ()) -> ASGIApp:
    """Return the application with the boundary around it."""
    return RequestMiddleware(application(errors), metrics)


def http_scope(method: str, path: str, headers: RawHeaders = ()) -> dict[str, Any]:
    """Return the scope of a request from this machine."""
    target, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": target,
        "raw_path": target.encode("utf-8", "surrogatepass"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
    }


def raw_headers(**headers: str) -> list[tuple[bytes, bytes]]:
    """Return headers as bytes; an underscore in a name is a dash."""
    return [
        (name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()
    ]


async def send(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    headers: RawHeaders = (),
    body: Sequence[bytes] = (),
    hangs_up: bool = False,
) -> Answer:
    """Send one request; without any chunk of a body the caller has gone away.

    A caller who hangs up does so at the first bytes of the answer's body.
    """
    incoming = [
        {"type": "http.request", "body": chunk, "more_body": index + 1 < len(body)}
        for index, chunk in enumerate(body)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def keep(message: Message) -> None:
        if hangs_up and message["type"] == "http.response.body":
            raise OSError
        sent.append(message)

    await app(http_scope(method, path, headers), receive, keep)
    received = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], received, content)


def sample(metrics: HttpMetrics, name: str, **labels: str) -> float | None:
    """Return the value of a metric, or null where nothing has been counted."""
    return metrics.registry.get_sample_value(name, labels)
