"""Errors as problem documents: what HTTP answers. Source: RFC 9457."""

import math
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from app.domain.errors import (
    MAX_VIOLATIONS,
    EntityBusyError,
    InvalidRequestError,
    QuotaError,
    TooManyRequestsError,
    UnauthenticatedError,
    Violation,
)
from app.http.errors import InvalidTokenError
from app.http.headers import REPLAYED_HEADER
from app.http.models import json_bytes, plain_json, result_json
from app.http.problem_catalog import PROBLEMS

MEDIA_TYPE: Final = "application/problem+json"


def status_of(error: QuotaError) -> HTTPStatus:
    """Return the status for an error: of its code, or of the nearest class with a row."""
    codes = (error.code, *(getattr(kind, "default_code", "") for kind in type(error).__mro__))
    return next(PROBLEMS[code].status for code in codes if code in PROBLEMS)


def code_of(error: QuotaError) -> str:
    """Return the problem's code.

    Where every violation of an invalid request is of one kind that has a page of its own, such
    as ``no-alterations``, that is the code.
    """
    codes = {violation.code for violation in error.violations}
    is_of_one_kind = len(codes) == 1 and codes <= PROBLEMS.keys()
    if is_of_one_kind and error.code == InvalidRequestError.default_code:
        return codes.pop()
    return error.code


def problem_document(error: QuotaError, request_id: str, instance: str) -> dict[str, Any]:
    """Return the problem document for an error."""
    code, status = code_of(error), status_of(error)
    kafka_errors = (violation.kafka_error for violation in error.violations)
    document: dict[str, Any] = {
        "type": f"/problems/{code}",
        "title": PROBLEMS[code].words.title if code in PROBLEMS else status.phrase,
        "status": status.value,
        "detail": error.detail,
        "instance": instance,
        "code": code,
        "request_id": request_id,
        "kafka_error": error.kafka_error or next(filter(None, kafka_errors), None),
        "sent_to_cluster": error.sent.value,
        "retry": error.retry.value,
        "errors": [_violation_json(violation) for violation in _limit(error.violations)],
    }
    if error.alteration_id is not None:
        document["alteration_id"] = error.alteration_id
    if error.results is not None:
        document["results"] = [result_json(result) for result in error.results]
    return document


def problem_headers(error: QuotaError, root_path: str = "") -> dict[str, str]:
    """Return the headers that belong to an error of a request below a path."""
    headers: dict[str, str] = {}
    retry_after_s = error.retry_after_s
    if retry_after_s is None and isinstance(error, EntityBusyError | TooManyRequestsError):
        retry_after_s = 1.0
    if retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = _challenges(error)
    if error.alteration_id is not None:
        headers["Location"] = f"{root_path}/quotas/alterations/{error.alteration_id}"
    if error.replayed:
        headers[REPLAYED_HEADER] = "true"
    return headers


def _challenges(error: UnauthenticatedError) -> str:
    """Return every scheme that is taken. Source: RFC 9110 11.6.1, RFC 6750 3."""
    schemes = list(error.schemes)
    if isinstance(error, InvalidTokenError) and "Bearer" in schemes:
        schemes[schemes.index("Bearer")] = 'Bearer error="invalid_token"'
    return ", ".join(schemes)


def problem_response(
    error: QuotaError,
    request_id: str,
    instance: str,
    headers: Mapping[str, str] | None = None,
    root_path: str = "",
) -> Response:
    """Return the answer for an error; ``headers`` come on top of its own."""
    return Response(
        json_bytes(problem_document(error, request_id, instance)) + b"\n",
        status_of(error).value,
        {**problem_headers(error, root_path), **(headers or {})},
        MEDIA_TYPE,
    )


def _limit(violations: Sequence[Violation]) -> Sequence[Violation]:
    """Return the violations that are listed, then one that says how many more there are."""
    if len(violations) <= MAX_VIOLATIONS:
        return violations
    detail = f"At least {len(violations) - MAX_VIOLATIONS} more are not listed."
    return [*violations[:MAX_VIOLATIONS], Violation("", "more", detail)]


def _violation_json(violation: Violation) -> dict[str, Any]:
    document = {
        "pointer": violation.pointer,
        "code": violation.code,
        "detail": violation.detail,
        "kafka_error": violation.kafka_error,
        "line": violation.line,
        "values": plain_json(violation.values),
        "budget": plain_json(violation.budget),
    }
    return {name: value for name, value in document.items() if value is not None}


_HEADERS: Final = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}


def raw_problem(error: QuotaError) -> bytes:
    """Return an answer of HTTP/1.1 after which the connection is closed."""
    request_id = secrets.token_hex(16)
    body = json_bytes(problem_document(error, request_id, "")) + b"\n"
    status = status_of(error)
    headers = {
        **_HEADERS,
        **problem_headers(error),
        "X-Request-Id": request_id,
        "Content-Length": str(len(body)),
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
