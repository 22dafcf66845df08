"""Headers of requests and answers as components."""

from collections.abc import Mapping
from typing import Any, Final

from app.http.idempotency import KEY_HEADER, LONGEST_KEY, REPLAYED_HEADER, SUPERSEDE_HEADER
from app.http.openapi.example_values import (
    ALTERATION_ID,
    CLUSTER_ID,
    IDEMPOTENCY_KEY,
    PAGE_TOKEN,
    REQUEST_ID,
)
from app.http.openapi.shapes import Schema, ref, text, whole
from app.http.openapi.value_schemas import ALTERATION_ID as ALTERATION_ID_PATTERN

_ALTERATION: Final = f"/quotas/alterations/{ALTERATION_ID}"

Header = dict[str, Any]


def _header(
    description: str, example: str | int, schema: Schema | None = None, *, required: bool = True
) -> Header:
    return {
        "description": description,
        "required": required,
        "schema": schema or text(),
        "example": example,
    }


HEADERS: Final[Mapping[str, Header]] = {
    "X-Request-Id": _header(
        "The id of this request in the log and in the audit log.", REQUEST_ID, ref("RequestId")
    ),
    "Cache-Control": _header("How an answer may be kept.", "no-store"),
    "ETag": _header(
        "Of the answer without `as_of`; for `If-None-Match`.",
        '"6f1ed002ab5595859014ebf0951522d9"',
        text(pattern='^"[0-9a-f]+"$'),
    ),
    "Vary": _header("The answer depends on `Accept`.", "Accept"),
    "X-Cluster-Id": _header("The member `cluster_id`, for every format.", CLUSTER_ID),
    "X-As-Of": _header(
        "The member `as_of`, for every format.", "2026-11-21T01:02:03.456Z", ref("Time")
    ),
    "X-Next-Page-Token": _header(
        "The member `next_page_token`, for every format; missing where it is null.",
        PAGE_TOKEN,
        required=False,
    ),
    "Location": _header("Where the alteration's record is.", _ALTERATION),
    "Run-Location": _header(
        "Where the run's record is.", "/analytics/runs/0192f3c2-5b00-7000-8000-000000000000"
    ),
    "Recorded-Location": _header(
        "Where the alteration's record is; missing where nothing was recorded.",
        _ALTERATION,
        required=False,
    ),
    REPLAYED_HEADER: _header(
        f"That the `{KEY_HEADER}` was used before: this is the present truth of that alteration, "
        "and nothing was changed. Missing on a first answer.",
        "true",
        {"const": "true"},
        required=False,
    ),
    "Retry-After": _header("When to come back, in seconds.", 1, whole(1)),
    "Maybe-Retry-After": _header(
        "When to come back, in seconds; missing where waiting is of no use.",
        1,
        whole(1),
        required=False,
    ),
    "WWW-Authenticate": _header("How to authenticate. RFC 6750.", "Bearer"),
}
"""By the name of the component; ``HEADER_NAMES`` says which are headers of another name."""

HEADER_NAMES: Final[Mapping[str, str]] = {
    "Recorded-Location": "Location",
    "Run-Location": "Location",
    "Maybe-Retry-After": "Retry-After",
}

_BARE_KEY: Final = rf"^[!#-~]([ -~]{{0,{LONGEST_KEY - 2}}}[!-~])?$"
_IN_QUOTES: Final = r'([!#-\[\]-~]|\\["\\])'
_QUOTED_KEY: Final = rf'^"{_IN_QUOTES}(( |{_IN_QUOTES}){{0,{LONGEST_KEY - 2}}}{_IN_QUOTES})?"$'


def _request_header(name: str, description: str, example: str, schema: Schema) -> Header:
    return {
        "name": name,
        "in": "header",
        "required": False,
        # An example of its own would be sent by each "Try it out" of /docs.
        "description": f"{description} For example `{example}`.",
        "schema": schema,
    }


_REQUEST_HEADERS: Final = (
    _request_header(
        "X-Request-Id",
        "The caller's own id for this request: 1 to 128 of `[A-Za-z0-9._-]`. Anything else is "
        "replaced by one made here.",
        REQUEST_ID,
        text(),
    ),
    _request_header(
        "If-None-Match",
        "Entity tags of answers that the caller has; with one of them it is 304.",
        '"6f1ed002ab5595859014ebf0951522d9"',
        text(),
    ),
    _request_header(
        KEY_HEADER,
        f"Makes it safe to repeat the request: 1 to {LONGEST_KEY} printable ASCII characters, bare "
        "or as a quoted string, kept for 24 hours for each principal. The same key with a body "
        "that is equal as JSON answers with what became of the first request and changes nothing; "
        "with another body it is 422, while the first one runs 409. Nothing is kept of requests "
        "that were refused before they were recorded, of which nothing was sent, or that the "
        "broker throttled, nor with `validate_only`.",
        IDEMPOTENCY_KEY,
        {"anyOf": [text(pattern=_BARE_KEY), text(pattern=_QUOTED_KEY)]},
    ),
    _request_header(
        SUPERSEDE_HEADER,
        "The `alteration_id` of an alteration whose outcome is unknown. It is closed as "
        "`superseded` and this one takes over its entities; the outcome of the old one stays "
        "unknown.",
        ALTERATION_ID,
        text(pattern=ALTERATION_ID_PATTERN),
    ),
)

REQUEST_HEADERS: Final[Mapping[str, Header]] = {one["name"]: one for one in _REQUEST_HEADERS}


def headers_of(*names: str) -> dict[str, Header]:
    """Return the headers of an answer: those that every answer has, and these."""
    everywhere = ("X-Request-Id", "Cache-Control")
    return {HEADER_NAMES.get(name, name): ref(name, "headers") for name in (*everywhere, *names)}
