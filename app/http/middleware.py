"""Around every request: its id and context, header limits, faults as problems, one log line."""

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.entities import Caller
from app.domain.errors import QuotaError, Sent
from app.http.errors import HeadersTooLargeError, PreflightRefusedError
from app.http.headers import (
    KEY_HEADER,
    LAST_EVENT_HEADER,
    REPLAYED_HEADER,
    SUPERSEDE_HEADER,
    bad_header,
)
from app.http.problems import code_of, problem_response
from app.metrics import Metrics
from app.service.runtime.tasks import CLUSTER

ON_OPERATIONS_PORT: Final = "on_operations_port"
"""In the state of a connection: whether it came in at the port for operations."""


class RefusedCredential(NamedTuple):
    """A credential that was not good.

    Attributes:
        method: The kind of credential; ``none`` where none was presented.
        code: Of the problem.
        address: The caller's, or the peer's where that is unknown.
    """

    method: str
    code: str
    address: str


@dataclass(slots=True)
class RequestContext:
    """One request.

    Attributes:
        request_id: The caller's own or made here.
        caller: Who calls, once authenticated.
        refusal: The credential that was refused, if one was.
        problem_code: The code of the problem that was answered, if one was.
        confirm: Judges the caller again behind the body; null where there is none, and where
            whoever alters does it.
        work: Ends when the answer begins: the request is no longer worked on.
        held: Ends when the request has ended, however it ends.
        is_head: Whether the caller takes the headers alone.
    """

    request_id: str
    caller: Caller | None = None
    refusal: RefusedCredential | None = None
    problem_code: str | None = None
    confirm: Callable[[], Awaitable[object]] | None = None
    work: ExitStack = field(default_factory=ExitStack)
    held: ExitStack = field(default_factory=ExitStack)
    is_head: bool = False

    @property
    def principal(self) -> str | None:
        """Return who calls; null before that is certain."""
        return None if self.caller is None else self.caller.principal


_current: Final[ContextVar[RequestContext | None]] = ContextVar("request", default=None)


def open_context(scope: Scope, request_id: str) -> RequestContext:
    """Attach a context to the request; every log line from here on carries the request id.

    Routes find it as ``request.state.context``, the id also as ``request.state.request_id``.
    """
    context = RequestContext(request_id)
    state = scope.setdefault("state", {})
    state["context"], state["request_id"] = context, request_id
    _current.set(context)
    return context


def add_request(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the request and the cluster that this is done for to a log event.

    A processor of structlog.
    """
    if cluster := CLUSTER.get():
        event["cluster"] = cluster
    context = _current.get()
    if context is not None:
        event["request_id"] = context.request_id
        if context.principal is not None:
            event["principal"] = context.principal
    return event


def context_of(request: Request) -> RequestContext:
    """Return the context of a request."""
    context: RequestContext = request.scope["state"]["context"]
    return context


def action_of(request: Request) -> str:
    """Return the method and the path of the route, without what the caller wrote into it."""
    route = request.scope.get("route")
    return f"{request.method} {getattr(route, 'path', request.url.path)}"


_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that alter nothing. Source: RFC 9110, 9.2.1."""


def error_response(
    request: Request, error: QuotaError, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer for an error, and note its code for the log and the metrics."""
    context = context_of(request)
    context.problem_code = code_of(error)
    instance = quote(request.scope["path"], errors="replace")
    root_path = request.scope.get("root_path", "")
    return problem_response(error, context.request_id, instance, headers, root_path)


def fault_response(request: Request) -> Response:
    """Return the answer for what should not happen; what it was stands in the log only.

    How far a request came that may alter something is open then.
    """
    sent = Sent.NO if request.method in _SAFE else Sent.MAYBE
    return error_response(
        request, QuotaError("A fault of this service; report the request id.", sent=sent)
    )


_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_NO_ANSWER: Final = 499
"""What the log and the metrics show where the request ended before its answer began."""

_REQUEST_ID_HEADER: Final = b"x-request-id"
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
logger = structlog.get_logger(__name__)

_CORS_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")
_CORS_REQUEST_HEADERS: Final = (
    "Authorization",
    KEY_HEADER,
    "If-Match",
    "If-None-Match",
    LAST_EVENT_HEADER,
    SUPERSEDE_HEADER,
    "X-Request-Id",
)
_CORS_EXPOSED_HEADERS: Final = (
    "ETag",
    "Location",
    "Retry-After",
    REPLAYED_HEADER,
    "WWW-Authenticate",
    "X-As-Of",
    "X-Cluster-Id",
    "X-Next-Page-Token",
    "X-Request-Id",
)


class _Cors(CORSMiddleware):
    """Starlette's, whose refusals are plain text."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == HTTPStatus.BAD_REQUEST:
            raise PreflightRefusedError(f"{bytes(response.body).decode()}.")
        return response


class RequestMiddleware:
    """Pure ASGI middleware; nothing inside it is cancelled or buffered by it.

    It stands around a whole application, or among its middleware.

    Args:
        app: What it stands around.
        metrics: Count each request.
        cors_origins: Whose pages may call from a browser with a bearer token: their preflight is
            answered before anything else, and they can read every answer, errors too.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, cors_origins: Sequence[str] = ()) -> None:
        self._app = app
        self._metrics = metrics
        self._handle: ASGIApp = self._handle_errors
        if cors_origins:
            self._handle = _Cors(
                self._handle_errors,
                allow_origins=cors_origins,
                allow_methods=_CORS_METHODS,
                allow_headers=_CORS_REQUEST_HEADERS,
                expose_headers=_CORS_EXPOSED_HEADERS,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what is not HTTP passes.

        HEAD is answered like GET; the server leaves the body out. Source: RFC 9110 9.1 and 9.3.2.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        context = open_context(scope, _request_id(scope))
        context.is_head = method == "HEAD"
        exchange = scope["state"]["exchange"] = _ResponseRecorder(context, send)
        self._metrics.active_requests.inc()
        try:
            await self._handle(scope, receive, exchange.send)
        except PreflightRefusedError as error:
            await error_response(Request(scope), error)(scope, receive, exchange.send)
        finally:
            context.work.close()
            context.held.close()
            self._metrics.active_requests.dec()
            self._record(scope, method, exchange)

    async def _handle_errors(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: _ResponseRecorder = scope["state"]["exchange"]
        try:
            refuse_bad_headers(scope)
            await self._app(scope, receive, send)
        except QuotaError as error:
            await error_response(Request(scope), error)(scope, receive, send)
        except ClientDisconnect:
            logger.info("the caller went away during the answer")
        except Exception:
            logger.exception("fault")
            if exchange.status is None:
                await fault_response(Request(scope))(scope, receive, send)
            elif not exchange.whole:
                raise  # the server then cuts the answer off, so that nobody takes it for whole

    def _record(self, scope: Scope, method: str, exchange: "_ResponseRecorder") -> None:
        context, refusal = exchange.context, exchange.context.refusal
        refused = refusal and {"authentication": refusal.method, "client_address": refusal.address}
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        status = exchange.status or _NO_ANSWER
        seconds = time.perf_counter() - exchange.began
        cluster = scope["state"].get("cluster", "")
        self._metrics.observe_request(route, method, status, seconds, cluster)
        self._count_judgements(context)
        logger.info(
            "request",
            method=method,
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 3),
            request_id=context.request_id,
            principal=context.principal,
            bytes=0 if method == "HEAD" else exchange.body_bytes,
            code=context.problem_code,
            **(refused or {}),
        )

    def _count_judgements(self, context: RequestContext) -> None:
        if context.caller is not None:
            self._metrics.count_authentication(context.caller.authentication)
        if context.refusal is not None:
            self._metrics.count_authentication(context.refusal.method, context.refusal.code)
        if context.problem_code is not None:
            self._metrics.rejected.labels(context.problem_code).inc()


class _ResponseRecorder:
    """Watches one answer and adds the headers that all answers have."""

    def __init__(self, context: RequestContext, send: Send) -> None:
        self.context = context
        self.began = time.perf_counter()
        self.status: int | None = None
        self.whole = False
        self.body_bytes = 0
        self._send = send

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message on; of the type ``Send``, without a coroutine of its own."""
        if message["type"] == "http.response.start":
            self.context.work.close()
            self.status = message["status"]
            self._complete(message)
        elif message["type"] == "http.response.body":
            self.body_bytes += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
        return self._send(message)

    def _complete(self, message: Message) -> None:
        """Add the headers that are not there; names come in lower case. Source: ASGI."""
        request_id = (_REQUEST_ID_HEADER, self.context.request_id.encode("ascii"))
        present = {name for name, _ in message["headers"]}
        headers = [pair for pair in message["headers"] if pair[0] != _REQUEST_ID_HEADER]
        headers += [pair for pair in _SECURITY_HEADERS if pair[0] not in present]
        if b"cache-control" not in present:
            headers.append((b"cache-control", b"no-cache" if b"etag" in present else b"no-store"))
        message["headers"] = [*headers, request_id]


def _request_id(scope: Scope) -> str:
    present: list[bytes] = [value for name, value in scope["headers"] if name == _REQUEST_ID_HEADER]
    if len(present) == 1 and _REQUEST_ID.fullmatch(present[0]):
        return present[0].decode("ascii")
    return secrets.token_hex(16)


MAX_HEADER_BYTES: Final = 32 * 1024
"""The path, the query and all headers together, in bytes."""

_LINE_OVERHEAD_BYTES: Final = 4


def refuse_bad_headers(scope: Scope) -> None:
    """Refuse headers that are too large or that two readers could understand differently.

    Raises:
        HeadersTooLargeError: Over 32 KiB in all.
        UnreadableRequestError: Several credentials, or a body whose end is ambiguous.
    """
    headers = scope["headers"]
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + _LINE_OVERHEAD_BYTES for name, value in headers)
    if size > MAX_HEADER_BYTES:
        detail = f"Path, query and headers have over {MAX_HEADER_BYTES} bytes; send fewer."
        raise HeadersTooLargeError(detail)
    credentials = [value for name, value in headers if name == b"authorization"]
    if len(credentials) > 1 or any(map(_JOINED_CREDENTIALS.search, credentials)):
        detail = "Give exactly one Authorization header."
        raise bad_header("authorization", "several-credentials", detail)
    names = [name for name, _ in headers]
    if names.count(b"content-length") + (b"transfer-encoding" in names) > 1:
        detail = "Give one Content-Length, and none with Transfer-Encoding."
        raise bad_header("content-length", "ambiguous-length", detail)


_JOINED_CREDENTIALS: Final = re.compile(rb"(?<![^\s,])[^\s,]++ ++[^\s,]++ *+, *+[^\s,]++ ++[^\s,]")
"""Two credentials in one header, as a proxy may join them.

Possessive and from the beginning of a word: a long header takes no longer than its length.
"""
