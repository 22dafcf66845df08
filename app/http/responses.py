"""What routes say of their answers: models with examples, headers, problems, who may call."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.http.headers import KEY_HEADER, LONGEST_KEY, REPLAYED_HEADER, SUPERSEDE_HEADER
from app.http.models import UUID7_PATTERN
from app.http.problem_catalog import PROBLEMS
from app.http.problems import MEDIA_TYPE

JSON: Final = "application/json"

Schema = dict[str, Any]
Response = dict[str, Any]
Responses = dict[int | str, Response]

_TEXT: Final[Schema] = {"type": "string"}


def reference(name: str, section: str = "schemas") -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/{section}/{name}"}


SCHEMES: Final[Mapping[str, Any]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that the operator of the service gave to a principal, or one that "
        "an identity provider signed.",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "User and password of the brokers, over TLS, where the operator allows it.",
    },
    "certificate": {
        "type": "mutualTLS",
        "description": "A client certificate, presented to the service or to a trusted proxy "
        "before it; the principal is the one that a broker makes of it.",
    },
}

CALLER: Final[Mapping[str, Any]] = {"security": [{name: []} for name in SCHEMES]}
"""Of an operation that needs a caller."""


_REQUEST_ID: Final = "3b0f6a52-7d5e-4a5f-9a54-6d1c0a1f2e3d"
_ALTERATION_ID: Final = "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f"
_ALTERATION: Final = f"/quotas/alterations/{_ALTERATION_ID}"

Header = dict[str, Any]


def _header(
    description: str, example: str | int, schema: Schema | None = None, *, required: bool = True
) -> Header:
    return {
        "description": description,
        "required": required,
        "schema": schema or dict(_TEXT),
        "example": example,
    }


HEADERS: Final[Mapping[str, Header]] = {
    "X-Request-Id": _header(
        "The id of this request in the log and in the audit log.",
        _REQUEST_ID,
        reference("RequestId"),
    ),
    "Cache-Control": _header("How an answer may be cached.", "no-store"),
    "ETag": _header(
        "Of the answer without `as_of`; for `If-None-Match`.",
        '"6f1ed002ab5595859014ebf0951522d9"',
        {**_TEXT, "pattern": '^"[0-9a-f]+"$'},
    ),
    "Vary": _header("The answer depends on `Accept`.", "Accept"),
    "X-Cluster-Id": _header("The member `cluster_id`, for every format.", "MkU3OEVBNTcwNTJENDM2Qg"),
    "X-As-Of": _header(
        "The member `as_of`, for every format.", "2026-11-21T01:02:03.456Z", reference("Time")
    ),
    "X-Next-Page-Token": _header(
        "The member `next_page_token`, for every format; missing where it is null.",
        "Yl9zaWduYXR1cmVfaGVyZVsxNzMyMTUwOTIzXQ",
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
    "Retry-After": _header("When to come back, in seconds.", 1, {"type": "integer", "minimum": 1}),
    "Maybe-Retry-After": _header(
        "When to come back, in seconds; missing where waiting is of no use.",
        1,
        {"type": "integer", "minimum": 1},
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
        _REQUEST_ID,
        dict(_TEXT),
    ),
    _request_header(
        "If-None-Match",
        "Entity tags of answers that the caller has; with one of them it is 304, or 412 where "
        "something would be altered. `*` is any.",
        '"6f1ed002ab5595859014ebf0951522d9"',
        dict(_TEXT),
    ),
    _request_header(
        "If-Match",
        "The entity tag of the entity as the caller has read it; 412 where it has changed since. "
        "`*` is any, so that the entity must have values.",
        '"6f1ed002ab5595859014ebf0951522d9"',
        dict(_TEXT),
    ),
    _request_header(
        KEY_HEADER,
        f"Makes it safe to repeat the request: 1 to {LONGEST_KEY} printable ASCII characters, bare "
        "or as a quoted string, stored for 24 hours for each principal. The same key with a body "
        "that is equal as JSON answers with what became of the first request and changes nothing; "
        "with another body it is 422, while the first one runs 409. Nothing is stored of requests "
        "that were refused before they were recorded, of which nothing was sent, or that the "
        "broker throttled, nor with `validate_only`.",
        "inc-4711-raise-for-backfill",
        {"anyOf": [{**_TEXT, "pattern": _BARE_KEY}, {**_TEXT, "pattern": _QUOTED_KEY}]},
    ),
    _request_header(
        SUPERSEDE_HEADER,
        "The `alteration_id` of an alteration whose outcome is unknown. It is closed as "
        "`superseded` and this one takes over its entities; the outcome of the old one stays "
        "unknown.",
        _ALTERATION_ID,
        {**_TEXT, "pattern": UUID7_PATTERN},
    ),
)

REQUEST_HEADERS: Final[Mapping[str, Header]] = {
    header["name"]: header for header in _REQUEST_HEADERS
}


def headers_of(*names: str) -> dict[str, Header]:
    """Return the headers of an answer: those that every answer has, and these."""
    everywhere = ("X-Request-Id", "Cache-Control")
    return {
        HEADER_NAMES.get(name, name): reference(name, "headers") for name in (*everywhere, *names)
    }


def content_of(*examples: str, schema: Schema | None = None) -> Schema:
    """Return what one media type holds: examples by name, and a schema where no model gives it."""
    content = {"examples": {name: reference(name, "examples") for name in examples}}
    return content if schema is None else {"schema": schema, **content}


def answer_of(
    model: Any, description: str, *examples: str, headers: tuple[str, ...] = ()
) -> Response:
    """Describe an answer in JSON; examples are named as in ``examples.yaml``."""
    return {
        "model": model,
        "description": description,
        "headers": headers_of(*headers),
        "content": {JSON: content_of(*examples)},
    }


def answers(model: Any, description: str, *examples: str, errors: tuple[str, ...]) -> Responses:
    """Describe an answer in JSON, and the problems that may come instead."""
    return {200: answer_of(model, description, *examples), **problems(*errors)}


def text_answer(description: str, media_type: str, *examples: str) -> Response:
    """Describe an answer in another format."""
    return {
        "description": description,
        "headers": headers_of(),
        "content": {media_type: content_of(*examples, schema=dict(_TEXT))},
    }


def request_examples(*names: str) -> dict[str, Any]:
    """Return what FastAPI adds to an operation, so that its body has examples."""
    return {"requestBody": {"content": {JSON: content_of(*names)}}}


TIED: Final = {
    "parameters": [reference(KEY_HEADER, "parameters"), reference(SUPERSEDE_HEADER, "parameters")]
}
"""What FastAPI adds to an operation whose request may be tied to an earlier one."""


class _Kind(NamedTuple):
    """Problems of one status that a route may answer: the most frequent, and their headers."""

    codes: tuple[str, ...]
    headers: tuple[str, ...] = ()


_RECORDED: Final = ("Recorded-Location", REPLAYED_HEADER)
_BUSY: Final = ("entity-busy", "idempotency-key-running", "outcome-superseded")
_FORBIDDEN: Final = ("cluster-authorization-failed", "no-authorizer")
_KEY_REUSED: Final = ("refused-by-broker", "idempotency-key-reused")

_KINDS: Final[Mapping[str, _Kind]] = {
    "Unreadable": _Kind(("unreadable-request",)),
    "UnreadableOrStale": _Kind(("unreadable-request", "bad-page-token")),
    "UnreadableAlteration": _Kind(("unreadable-request", "bad-idempotency-key", "bad-supersede")),
    "Unauthenticated": _Kind(("unauthenticated", "invalid-token"), ("WWW-Authenticate",)),
    "NotAuthorized": _Kind(_FORBIDDEN),
    "AlterationNotAuthorized": _Kind((*_FORBIDDEN, "policy-violation")),
    "NotFound": _Kind(("not-found",)),
    "NoSuchEntity": _Kind(("no-such-entity",)),
    "NoRun": _Kind(("no-run",)),
    "NoSuchBucket": _Kind(("not-found", "no-run")),
    "NotAcceptable": _Kind(("not-acceptable",)),
    "BodyTooSlow": _Kind(("request-timeout",)),
    "EntityBusy": _Kind(_BUSY, ("Maybe-Retry-After", *_RECORDED)),
    "PlanBusy": _Kind(("owner-conflict", *_BUSY), ("Maybe-Retry-After", *_RECORDED)),
    "PlanExpired": _Kind(("plan-expired",)),
    "ExpectationFailed": _Kind(("expectation-failed",), _RECORDED),
    "PlanOutdated": _Kind(("plan-outdated",), _RECORDED),
    "BodyTooLarge": _Kind(("body-too-large",)),
    "NotJson": _Kind(("unsupported-media-type",)),
    "InvalidRequest": _Kind(("invalid-request",)),
    "BadAlteration": _Kind(("invalid-request", "no-alterations", *_KEY_REUSED), _RECORDED),
    "CannotRevert": _Kind(
        ("nothing-to-revert", "not-concluded", "cannot-be-restored", *_KEY_REUSED), _RECORDED
    ),
    "TooManyRequests": _Kind(("rate-limited", "too-many-requests"), ("Retry-After",)),
    "HeadersTooLarge": _Kind(("headers-too-large",)),
    "OldBroker": _Kind(("unsupported-broker-version",)),
    "BrokerError": _Kind(("broker-error",)),
    "Unavailable": _Kind(("not-sent",)),
    "AlterationUnavailable": _Kind(("not-sent", "outcome-not-recorded"), _RECORDED),
    "OutcomeUnknown": _Kind(("outcome-unknown",), ("Location", REPLAYED_HEADER)),
    "Unexpected": _Kind(("internal-error",)),
}


def _problem(kind: _Kind) -> Response:
    return {
        "description": " ".join(f"{PROBLEMS[code].words.title} (`{code}`)." for code in kind.codes),
        "headers": headers_of(*kind.headers),
        "content": {MEDIA_TYPE: {"schema": reference("Problem")}},
    }


PROBLEM_RESPONSES: Final[Mapping[str, Response]] = {
    name: _problem(kind) for name, kind in _KINDS.items()
}


ANY: Final = ("Unreadable", "HeadersTooLarge", "TooManyRequests")
ASKING: Final = (*ANY, "Unauthenticated", "Unavailable")
READING: Final = (*ASKING, "NotAuthorized", "TooManyRequests", "OldBroker", "BrokerError")
WITH_BODY: Final = ("BodyTooSlow", "BodyTooLarge", "NotJson")
_CHANGING: Final = (
    *READING,
    "AlterationNotAuthorized",
    "UnreadableAlteration",
    "EntityBusy",
    "ExpectationFailed",
    "AlterationUnavailable",
    "OutcomeUnknown",
)
ALTERING: Final = (*_CHANGING, *WITH_BODY, "BadAlteration")
REMOVING: Final = (*_CHANGING, "BadAlteration", "NoSuchEntity")
REPLACING: Final = (*REMOVING, *WITH_BODY)
REVERTING: Final = (*_CHANGING, *WITH_BODY, "NotFound", "CannotRevert")
APPLYING: Final = (*ALTERING, "NotFound", "PlanExpired", "PlanOutdated", "PlanBusy")
"""What can go wrong, from any request to one that alters."""


def problems(*names: str) -> Responses:
    """Return problems by status, and any other as the default; the last of a status counts."""
    by_status: Responses = {
        PROBLEMS[_KINDS[name].codes[0]].status.value: reference(name, "responses") for name in names
    }
    return {**by_status, "default": reference("Unexpected", "responses")}
