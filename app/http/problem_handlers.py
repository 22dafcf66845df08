"""How FastAPI answers errors: always with a problem document."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from app.domain.errors import (
    NotFoundError,
    QuotaError,
    Sent,
    UnreadableRequestError,
    Violation,
)
from app.http.errors import BodyTooLargeError, MethodNotAllowedError
from app.http.json_pointer import child
from app.http.problems import code_of, problem_response
from app.http.request_context import action_of, context_of
from app.http.services import services_of
from app.service.auth.authorize import RULE
from app.service.auth.denials import DeniedAttempt
from app.service.auth.run_as_caller import RefusedAtTheActError
from app.service.runtime.offload import off_loop

_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "GET": ("GET", "HEAD"),
    **{method: (method,) for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS")},
}
"""What a route takes to what a caller may send: the boundary reads HEAD as GET."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that alter nothing. Source: RFC 9110, 9.2.1."""

_OF_STATUS: Final[Mapping[int, tuple[type[QuotaError], str]]] = {
    400: (UnreadableRequestError, "The request cannot be read."),
    404: (NotFoundError, "Nothing is at this path."),
    405: (MethodNotAllowedError, "This path does not take that method; see the header Allow."),
    413: (BodyTooLargeError, "The body is too large; split the request."),
}


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error a problem document, faults included."""
    app.add_exception_handler(QuotaError, _on_quota_error)
    app.add_exception_handler(RefusedAtTheActError, _on_refusal_at_the_act)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(Exception, _on_fault)


def instance_of(scope: Scope) -> str:
    """Return the path of a request as a URI reference, without the query."""
    return quote(scope["path"], errors="replace")


def answer(
    request: Request, error: QuotaError, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer for an error, and note its code for the log and the metrics."""
    context = context_of(request)
    context.problem_code = code_of(error)
    return problem_response(error, context.request_id, instance_of(request.scope), headers)


def answer_to_fault(request: Request) -> Response:
    """Return the answer for what should not happen; what it was stands in the log only.

    How far a request came that may alter something is not known then.
    """
    sent = Sent.NO if request.method in _SAFE else Sent.MAYBE
    return answer(request, QuotaError("A fault of this service; report the request id.", sent=sent))


async def _on_fault(request: Request, _: Exception) -> Response:
    return answer_to_fault(request)


async def _on_quota_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, QuotaError):
        raise error
    number = len(error.results or ()) + len(error.violations)
    return await off_loop(number, answer, request, error)


async def _on_refusal_at_the_act(request: Request, error: Exception) -> Response:
    """Keep the attempt of a caller whom a broker refused a read that was thought allowed."""
    if not isinstance(error, RefusedAtTheActError):
        raise error
    context = context_of(request)
    if context.caller is not None:
        evidence = {"allowed": False, "rule": RULE, "asked": "DescribeClientQuotas"}
        attempt = DeniedAttempt(context.request_id, action_of(request), evidence)
        await services_of(request).denials.record(context.caller, error, attempt)
    return answer(request, error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kind, detail = _OF_STATUS.get(error.status_code, (QuotaError, "The request failed."))
    headers = dict(error.headers or {})
    if kind is MethodNotAllowedError:
        headers["Allow"] = ", ".join(_allowed_methods(request))
    return answer(request, kind(detail), headers)


def _allowed_methods(request: Request) -> list[str]:
    """Return every method of the path; starlette names those of one route only."""
    routes = request.app.router.routes
    return [
        name
        for method, names in _METHODS.items()
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
        for name in names
    ]


async def _on_validation_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    violations = [_violation(one) for one in error.errors()]
    detail = "The request cannot be read."
    return answer(request, UnreadableRequestError(detail, violations=violations))


def _violation(error: Mapping[str, Any]) -> Violation:
    source, *places = error["loc"]
    pointer = ""
    for place in places:
        pointer = child(pointer, place)
    return Violation(
        pointer if source == "body" else pointer.removeprefix("/"), "wrong-type", str(error["msg"])
    )
