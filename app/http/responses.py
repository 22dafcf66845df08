"""What routes say of their answers: models with examples, headers, problems, who may call."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.domain.errors import (
    BrokerError,
    ClusterAuthorizationError,
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    NotFoundError,
    NotSentError,
    OwnerConflictError,
    PlanExpiredError,
    QuotaError,
    TooManyRequestsError,
    UnauthenticatedError,
    UnknownOutcomeError,
    UnreadableRequestError,
    UnsupportedVersionError,
)
from app.http.errors import (
    BodyTooLargeError,
    HeadersTooLargeError,
    NotAcceptableError,
    RequestTimeoutError,
    UnsupportedMediaTypeError,
)
from app.http.example_values import (
    ALTERATION_ID,
    CLUSTER_ID,
    IDEMPOTENCY_KEY,
    PAGE_TOKEN,
    REQUEST_ID,
)
from app.http.headers import KEY_HEADER, LONGEST_KEY, REPLAYED_HEADER, SUPERSEDE_HEADER
from app.http.models import UUID7_PATTERN
from app.http.problem_catalog import PROBLEMS
from app.http.problems import MEDIA_TYPE, problem_document, status_of

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
        "description": "A client certificate, shown to the service or to a trusted proxy before "
        "it; the principal is the one that a broker makes of it.",
    },
}

CALLER: Final[Mapping[str, Any]] = {"security": [{name: []} for name in SCHEMES]}
"""Of an operation that needs a caller."""


_ALTERATION: Final = f"/quotas/alterations/{ALTERATION_ID}"

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
        REQUEST_ID,
        reference("RequestId"),
    ),
    "Cache-Control": _header("How an answer may be kept.", "no-store"),
    "ETag": _header(
        "Of the answer without `as_of`; for `If-None-Match`.",
        '"6f1ed002ab5595859014ebf0951522d9"',
        {**_TEXT, "pattern": '^"[0-9a-f]+"$'},
    ),
    "Vary": _header("The answer depends on `Accept`.", "Accept"),
    "X-Cluster-Id": _header("The member `cluster_id`, for every format.", CLUSTER_ID),
    "X-As-Of": _header(
        "The member `as_of`, for every format.", "2026-11-21T01:02:03.456Z", reference("Time")
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
        REQUEST_ID,
        dict(_TEXT),
    ),
    _request_header(
        "If-None-Match",
        "Entity tags of answers that the caller has; with one of them it is 304.",
        '"6f1ed002ab5595859014ebf0951522d9"',
        dict(_TEXT),
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
        {"anyOf": [{**_TEXT, "pattern": _BARE_KEY}, {**_TEXT, "pattern": _QUOTED_KEY}]},
    ),
    _request_header(
        SUPERSEDE_HEADER,
        "The `alteration_id` of an alteration whose outcome is unknown. It is closed as "
        "`superseded` and this one takes over its entities; the outcome of the old one stays "
        "unknown.",
        ALTERATION_ID,
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
    """Describe an answer in JSON; examples are named as in ``examples``."""
    return {
        "model": model,
        "description": description,
        "headers": headers_of(*headers),
        "content": {JSON: content_of(*examples)},
    }


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
    error: type[QuotaError]
    description: str
    codes: tuple[str, ...]
    headers: tuple[str, ...] = ()


_KINDS: Final[Mapping[str, _Kind]] = {
    "Unreadable": _Kind(
        UnreadableRequestError,
        "The request cannot be read: not JSON, an unknown or repeated field or parameter, a "
        "wrong type, more than one credential.",
        ("unreadable-request",),
    ),
    "UnreadableOrStale": _Kind(
        UnreadableRequestError,
        "The query cannot be read, or the page token is forged, of another query or too old.",
        ("unreadable-request", "bad-page-token"),
    ),
    "Unauthenticated": _Kind(
        UnauthenticatedError,
        "No valid credential.",
        ("unauthenticated", "invalid-token"),
        ("WWW-Authenticate",),
    ),
    "NotAuthorized": _Kind(
        ClusterAuthorizationError,
        "The caller may not, or the cluster has no authorizer that could say so.",
        ("cluster-authorization-failed", "no-authorizer"),
    ),
    "AlterationNotAuthorized": _Kind(
        ClusterAuthorizationError,
        "The caller may not alter, or the cluster has no authorizer that could say so, or the"
        " policy of this service forbids some of it (`policy-violation`; `errors` lists every"
        " place). The request is refused as a whole, also with `all_or_nothing` false.",
        ("cluster-authorization-failed", "no-authorizer", "policy-violation"),
    ),
    "UnreadableAlteration": _Kind(
        UnreadableRequestError,
        "The request cannot be read: not JSON, an unknown or repeated field or parameter, a "
        "wrong type, more than one credential, a header that is not what it should be.",
        ("unreadable-request", "bad-idempotency-key", "bad-supersede"),
    ),
    "NotFound": _Kind(
        NotFoundError, "Nothing is there, or nothing that the caller may see.", ("not-found",)
    ),
    "NoRun": _Kind(NotFoundError, "No run of the pipeline has published this yet.", ("no-run",)),
    "NoSuchBucket": _Kind(
        NotFoundError,
        "There is no such bucket, or no run of the pipeline has published any.",
        ("not-found", "no-run"),
    ),
    "NotAcceptable": _Kind(
        NotAcceptableError, "`Accept` excludes every format.", ("not-acceptable",)
    ),
    "BodyTooSlow": _Kind(
        RequestTimeoutError,
        "The body did not arrive in time; nothing was done.",
        ("request-timeout",),
    ),
    "EntityBusy": _Kind(
        EntityBusyError,
        "Another alteration of the same entity is in flight, or the request with the same "
        "idempotency key still runs; nothing was sent. Or that request has ended, and not all"
        " of it was applied. `Location` is that alteration's.",
        ("entity-busy", "idempotency-key-running", "outcome-superseded"),
        ("Maybe-Retry-After", "Recorded-Location", REPLAYED_HEADER),
    ),
    "ExpectationFailed": _Kind(
        ExpectationFailedError,
        "`expected` does not hold; nothing was applied for any entity. `errors` carry the "
        "current values.",
        ("expectation-failed",),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "BodyTooLarge": _Kind(BodyTooLargeError, "The body has over 8 MiB.", ("body-too-large",)),
    "NotJson": _Kind(
        UnsupportedMediaTypeError,
        "The body is not JSON in UTF-8, or it is compressed.",
        ("unsupported-media-type",),
    ),
    "BadParameter": _Kind(InvalidRequestError, "A parameter breaks a rule.", ("invalid-request",)),
    "BadFilter": _Kind(
        InvalidRequestError,
        "A parameter breaks a rule; for a filter `kafka_error` is what a broker would give.",
        ("invalid-request",),
    ),
    "BadIdentity": _Kind(
        InvalidRequestError, "A rule is broken; every violation is listed.", ("invalid-request",)
    ),
    "BadRun": _Kind(
        InvalidRequestError,
        "The job or an option is not one that may be asked for; nothing was queued.",
        ("invalid-request",),
    ),
    "BadWhatIf": _Kind(
        InvalidRequestError,
        "A rule of Kafka or of this service is broken; every violation is listed.",
        ("invalid-request",),
    ),
    "BadAlteration": _Kind(
        InvalidRequestError,
        "The content breaks a rule of Kafka or of this service, or the broker refuses it; "
        "nothing was applied. Every violation is listed.",
        ("invalid-request", "no-alterations", "refused-by-broker", "idempotency-key-reused"),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "BadPlan": _Kind(
        InvalidRequestError,
        "What would change breaks a rule of Kafka or of this service, or an entity is outside"
        " the scope; every violation is listed.",
        ("invalid-request",),
    ),
    "NoSuchPlan": _Kind(
        NotFoundError, "There is no such plan, or it is kept no more.", ("not-found",)
    ),
    "PlanExpired": _Kind(
        PlanExpiredError, "The plan has expired; nothing was applied.", ("plan-expired",)
    ),
    "PlanOutdated": _Kind(
        ExpectationFailedError,
        "The cluster has changed since the plan was made; nothing was applied. `errors` carry"
        " the current values.",
        ("plan-outdated",),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "PlanBusy": _Kind(
        OwnerConflictError,
        "Another owner holds what the plan would change; or another alteration of the same "
        "entity is in flight, or the request with the same idempotency key still runs, and "
        "`Location` is that alteration's. Nothing was sent. Or that request has ended, and "
        "not all of it was applied.",
        ("owner-conflict", "entity-busy", "idempotency-key-running", "outcome-superseded"),
        ("Maybe-Retry-After", "Recorded-Location", REPLAYED_HEADER),
    ),
    "CannotRevert": _Kind(
        InvalidRequestError,
        "It cannot be taken back, or the broker refuses that; nothing was applied.",
        (
            "nothing-to-revert",
            "not-concluded",
            "cannot-be-restored",
            "refused-by-broker",
            "idempotency-key-reused",
        ),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "TooManyRequests": _Kind(
        TooManyRequestsError,
        "A rate limit of this service, or the broker throttles.",
        ("rate-limited", "too-many-requests"),
        ("Retry-After",),
    ),
    "HeadersTooLarge": _Kind(
        HeadersTooLargeError,
        "The path, the query and the headers have over 32 KiB together.",
        ("headers-too-large",),
    ),
    "OldBroker": _Kind(
        UnsupportedVersionError, "The broker is older than 2.6.", ("unsupported-broker-version",)
    ),
    "BrokerError": _Kind(
        BrokerError, "The broker answered with an error or nonsense.", ("broker-error",)
    ),
    "Unavailable": _Kind(
        NotSentError, "A dependency cannot be reached; nothing was sent.", ("not-sent",)
    ),
    "AlterationUnavailable": _Kind(
        NotSentError,
        "Either nothing was sent (`sent_to_cluster` is `no`), or the cluster has answered and"
        " its answer is not recorded yet (`yes`, `outcome-not-recorded`).",
        ("not-sent", "outcome-not-recorded"),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "OutcomeUnknown": _Kind(
        UnknownOutcomeError,
        "Sent, and the outcome is unknown; `Location` says where the truth will be.",
        ("outcome-unknown",),
        ("Location", REPLAYED_HEADER),
    ),
    "Unexpected": _Kind(
        QuotaError, "Any other problem, such as a fault of this service.", ("internal-error",)
    ),
}


def _problem(kind: _Kind) -> Response:
    examples = (f"problem-{code}" for code in kind.codes)
    return {
        "description": kind.description,
        "headers": headers_of(*kind.headers),
        "content": {MEDIA_TYPE: content_of(*examples, schema=reference("Problem"))},
    }


PROBLEM_RESPONSES: Final[Mapping[str, Response]] = {
    name: _problem(kind) for name, kind in _KINDS.items()
}


def _example(kind: _Kind, code: str) -> dict[str, Any]:
    error = kind.error(PROBLEMS[code].meaning if code in PROBLEMS else kind.description, code=code)
    document = problem_document(error, REQUEST_ID, "/quotas/alterations")
    return {"summary": document["title"], "value": document}


PROBLEM_EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    f"problem-{code}": _example(kind, code) for kind in _KINDS.values() for code in kind.codes
}


ANY: Final = ("Unreadable", "HeadersTooLarge", "TooManyRequests")
ASKING: Final = (*ANY, "Unauthenticated", "Unavailable")
READING: Final = (*ASKING, "NotAuthorized", "TooManyRequests", "OldBroker", "BrokerError")
WITH_BODY: Final = ("BodyTooSlow", "BodyTooLarge", "NotJson")
_CHANGING: Final = (
    *READING,
    *WITH_BODY,
    "AlterationNotAuthorized",
    "UnreadableAlteration",
    "EntityBusy",
    "ExpectationFailed",
    "AlterationUnavailable",
    "OutcomeUnknown",
)
ALTERING: Final = (*_CHANGING, "BadAlteration")
REVERTING: Final = (*_CHANGING, "NotFound", "CannotRevert")
APPLYING: Final = (
    *ALTERING,
    "NoSuchPlan",
    "PlanExpired",
    "PlanOutdated",
    "PlanBusy",
)
"""What can go wrong, from any request to one that alters."""


def problems(*names: str) -> Responses:
    """Return problems by status, and any other as the default; the last of a status counts."""
    by_status: Responses = {
        status_of(_KINDS[name].error("")).value: reference(name, "responses") for name in names
    }
    return {**by_status, "default": reference("Unexpected", "responses")}
