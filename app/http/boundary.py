"""The outermost layer: request ids, header limits, the last resort for faults, one log line."""

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.errors import QuotaError
from app.http.headers import refuse_bad_headers
from app.http.metrics import HttpMetrics
from app.http.problem_handlers import answer, answer_to_fault
from app.http.request_context import RequestContext, open_context

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_NO_ANSWER: Final = 499
"""What the log and the metrics show where the request ended before its answer began."""

_CREDENTIAL_CODES: Final = frozenset(
    {"unauthenticated", "invalid-token", "invalid-certificate", "login-failed"}
)

_REQUEST_ID_HEADER: Final = b"x-request-id"
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_USUAL_HEADERS: Final = (*_SECURITY_HEADERS, (b"cache-control", b"no-store"))
_JUDGED_HEADERS: Final = frozenset(
    {_REQUEST_ID_HEADER, b"etag", *(name for name, _ in _USUAL_HEADERS)}
)
"""An answer without any of these is given the usual ones."""

logger = structlog.get_logger(__name__)

RequestLog = Callable[[dict[str, Any]], None]
"""Writes the line of a request; is given its fields, and may change them."""


def log_request(line: dict[str, Any]) -> None:
    """Write the line of a request like any other."""
    logger.info("request", **line)


class RequestBoundary:
    """Pure ASGI middleware; nothing inside it is cancelled or buffered by it.

    It stands around a whole application, or among its middleware.

    Args:
        app: What it stands around.
        metrics: Count each request.
        log: Writes the line of each request.
    """

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, log: RequestLog = log_request) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log

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
        exchange = _Exchange(context, send)
        self._metrics.active_requests.inc()
        try:
            refuse_bad_headers(scope)
            await self._app(scope, receive, exchange.send)
        except QuotaError as error:
            await answer(Request(scope), error)(scope, receive, exchange.send)
        except ClientDisconnect:
            logger.info("the caller went away during the answer")
        except Exception:
            logger.exception("fault")
            if exchange.status is None:
                await answer_to_fault(Request(scope))(scope, receive, exchange.send)
            elif not exchange.whole:
                raise  # the server then cuts the answer off, so that nobody takes it for whole
        finally:
            context.has_ended()
            self._metrics.active_requests.dec()
            self._record(scope, method, exchange)

    def _record(self, scope: Scope, method: str, exchange: "_Exchange") -> None:
        context = exchange.context
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        status = exchange.status or _NO_ANSWER
        seconds = time.perf_counter() - exchange.began
        self._metrics.observe_request(route, method, status, seconds)
        self._count_judgements(context)
        self._log(
            {
                "method": method,
                "route": route,
                "status": status,
                "duration_ms": round(seconds * 1000, 3),
                "request_id": context.request_id,
                "principal": context.principal,
                "bytes": 0 if method == "HEAD" else exchange.body_bytes,
                "code": context.problem_code,
            }
        )

    def _count_judgements(self, context: RequestContext) -> None:
        if context.authentication is not None:
            self._metrics.count_authentication(context.authentication)
        refused = context.refused_credential
        if context.problem_code is not None:
            self._metrics.count_rejected(context.problem_code)
            if context.problem_code in _CREDENTIAL_CODES:
                refused = context.problem_code
        if refused is not None:
            self._metrics.count_authentication(context.refused_method, refused)


class _Exchange:
    """Watches one answer on its way out and gives it the headers that all answers have."""

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
            self.context.work_has_ended()
            self.status = message["status"]
            self._complete(message)
        elif message["type"] == "http.response.body":
            self.body_bytes += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
        return self._send(message)

    def _complete(self, message: Message) -> None:
        """Add the headers that are not there; names come in lower case. Source: ASGI."""
        request_id = (_REQUEST_ID_HEADER, self.context.request_id.encode("ascii"))
        given = {name for name, _ in message["headers"]}
        if given.isdisjoint(_JUDGED_HEADERS):
            message["headers"] = [*message["headers"], *_USUAL_HEADERS, request_id]
            return
        headers = [pair for pair in message["headers"] if pair[0] != _REQUEST_ID_HEADER]
        headers += [pair for pair in _SECURITY_HEADERS if pair[0] not in given]
        if b"cache-control" not in given:
            headers.append((b"cache-control", b"no-cache" if b"etag" in given else b"no-store"))
        message["headers"] = [*headers, request_id]


def _request_id(scope: Scope) -> str:
    given: list[bytes] = [value for name, value in scope["headers"] if name == _REQUEST_ID_HEADER]
    if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
        return given[0].decode("ascii")
    return secrets.token_hex(16)
