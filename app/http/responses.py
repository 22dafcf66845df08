"""What routes say of their answers: models with examples, headers, problems, who may call."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.http.headers import KEY_HEADER, REPLAYED_HEADER, SUPERSEDE_HEADER
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


CALLER: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"basic": []}, {"certificate": []}]
"""The security of an operation that needs a caller."""

HEADER_NAMES: Final[Mapping[str, str]] = {
    "Recorded-Location": "Location",
    "Maybe-Retry-After": "Retry-After",
    "New-ETag": "ETag",
}
"""Headers of the document whose component has another name."""


def headers_of(*names: str) -> dict[str, Schema]:
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


def answers(
    model: Any, description: str, *examples: str, errors: tuple[str, ...] = ()
) -> Responses:
    """Describe an answer in JSON, and problems that not every such route has."""
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


TIED: Final = [reference(KEY_HEADER, "parameters"), reference(SUPERSEDE_HEADER, "parameters")]
"""The parameters of an operation whose request may be tied to an earlier one."""


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
    "AlterationNotAuthorized": _Kind((*_FORBIDDEN, "policy-violation"), _RECORDED),
    "NotFound": _Kind(("not-found",)),
    "NoSuchCluster": _Kind(("no-such-cluster",)),
    "NoSuchEntity": _Kind(("no-such-entity",)),
    "NoRun": _Kind(("no-run",)),
    "NoSuchBucket": _Kind(("not-found", "no-run")),
    "NotAcceptable": _Kind(("not-acceptable",)),
    "BodyTooSlow": _Kind(("request-timeout",)),
    "EntityBusy": _Kind(_BUSY, ("Maybe-Retry-After", *_RECORDED)),
    "RevertBusy": _Kind(("before-unknown", *_BUSY), ("Maybe-Retry-After", *_RECORDED)),
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
    "AlterationThrottled": _Kind(
        ("rate-limited", "throttled-by-broker"), ("Retry-After", *_RECORDED)
    ),
    "HeadersTooLarge": _Kind(("headers-too-large",)),
    "OldBroker": _Kind(("unsupported-broker-version",)),
    "AlterationOldBroker": _Kind(("unsupported-broker-version",), _RECORDED),
    "BrokerError": _Kind(("broker-error",)),
    "AlterationBrokerError": _Kind(("broker-error", "service-account-not-authorized"), _RECORDED),
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
CHANGING: Final = (
    "AlterationNotAuthorized",
    "UnreadableAlteration",
    "EntityBusy",
    "ExpectationFailed",
    "AlterationThrottled",
    "AlterationOldBroker",
    "AlterationBrokerError",
    "AlterationUnavailable",
    "OutcomeUnknown",
    "BadAlteration",
)
"""What can go wrong, from any request to one that alters."""


def problems(*names: str) -> Responses:
    """Return problems by status, and any other as the default; the last of a status counts."""
    by_status: Responses = {
        PROBLEMS[_KINDS[name].codes[0]].status.value: reference(name, "responses") for name in names
    }
    return {**by_status, "default": reference("Unexpected", "responses")}
