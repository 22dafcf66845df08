"""Problems as bytes, for what is refused before there is a request."""

import secrets
from typing import Final

from app.domain.errors import QuotaError
from app.http.encoding import json_bytes
from app.http.problems import MEDIA_TYPE, problem_document, problem_headers, status_of

_HEADERS: Final = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}


def raw_problem(error: QuotaError) -> bytes:
    """Return an answer of HTTP/1.1 after which the connection is closed."""
    request_id = secrets.token_hex(16)
    body = json_bytes(problem_document(error, request_id, ""))
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
