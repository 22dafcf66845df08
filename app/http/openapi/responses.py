"""Answers as components: problems by kind; and the makers of an operation's own answers."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from app.http.idempotency import REPLAYED_HEADER
from app.http.openapi.headers import headers_of
from app.http.openapi.problem_examples import PROBLEM_ERRORS
from app.http.openapi.shapes import ref
from app.http.problems import MEDIA_TYPE, status_of

JSON: Final = "application/json"

Response = dict[str, Any]


class _Kind(NamedTuple):
    description: str
    examples: tuple[str, ...]
    headers: tuple[str, ...] = ()


_KINDS: Final[Mapping[str, _Kind]] = {
    "Unreadable": _Kind(
        "The request cannot be read: not JSON, an unknown or repeated field or parameter, a wrong "
        "type, more than one credential.",
        ("unreadable",),
    ),
    "UnreadableOrStale": _Kind(
        "The query cannot be read, or the page token is forged, of another query or too old.",
        ("unreadable", "page-token"),
    ),
    "Unauthenticated": _Kind(
        "No valid credential.", ("no-credential", "bad-credential"), ("WWW-Authenticate",)
    ),
    "NotAuthorized": _Kind(
        "The caller may not, or the cluster has no authorizer that could say so.",
        ("not-authorized", "no-authorizer"),
    ),
    "AlterationNotAuthorized": _Kind(
        "The caller may not alter, or the cluster has no authorizer that could say so, or the "
        "policy of this service forbids some of it (`policy-violation`; `errors` lists every "
        "place). The request is refused as a whole, also with `all_or_nothing` false.",
        ("not-authorized", "no-authorizer", "policy-violation"),
    ),
    "UnreadableAlteration": _Kind(
        "The request cannot be read: not JSON, an unknown or repeated field or parameter, a wrong "
        "type, more than one credential, a header that is not what it should be.",
        ("unreadable", "bad-idempotency-key", "bad-supersede"),
    ),
    "NotFound": _Kind("Nothing is there, or nothing that the caller may see.", ("not-found",)),
    "NoRun": _Kind("No run of the pipeline has published this yet.", ("no-run",)),
    "NoSuchBucket": _Kind(
        "There is no such bucket, or no run of the pipeline has published any.",
        ("no-such-bucket", "no-run"),
    ),
    "NotAcceptable": _Kind("`Accept` excludes every format.", ("not-acceptable",)),
    "BodyTooSlow": _Kind("The body did not arrive in time; nothing was done.", ("body-too-slow",)),
    "EntityBusy": _Kind(
        "Another alteration of the same entity is in flight, or the request with the same "
        "idempotency key still runs; nothing was sent. Or that request has ended, and not all of "
        "it was applied. `Location` is that alteration's.",
        ("entity-busy", "idempotency-key-running", "outcome-superseded"),
        ("Maybe-Retry-After", "Recorded-Location", REPLAYED_HEADER),
    ),
    "ExpectationFailed": _Kind(
        "`expected` does not hold; nothing was applied for any entity. `errors` carry the current "
        "values.",
        ("expectation-failed",),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "BodyTooLarge": _Kind("The body has over 8 MiB.", ("body-too-large",)),
    "NotJson": _Kind("The body is not JSON in UTF-8, or it is compressed.", ("not-json",)),
    "BadParameter": _Kind("A parameter breaks a rule.", ("bad-parameter",)),
    "BadFilter": _Kind(
        "A parameter breaks a rule; for a filter `kafka_error` is what a broker would give.",
        ("bad-filter",),
    ),
    "BadIdentity": _Kind("A rule is broken; every violation is listed.", ("no-identity",)),
    "BadRun": _Kind(
        "The job or an option is not one that may be asked for; nothing was queued.", ("bad-run",)
    ),
    "BadWhatIf": _Kind(
        "A rule of Kafka or of this service is broken; every violation is listed.",
        ("no-identity", "bad-alterations"),
    ),
    "BadAlteration": _Kind(
        "The content breaks a rule of Kafka or of this service, or the broker refuses it; nothing "
        "was applied. Every violation is listed.",
        ("bad-alterations", "no-alterations", "refused-by-broker", "idempotency-key-reused"),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "BadPlan": _Kind(
        "What would change breaks a rule of Kafka or of this service, or an entity is outside the "
        "scope; every violation is listed.",
        ("bad-plan",),
    ),
    "NoSuchPlan": _Kind("There is no such plan, or it is kept no more.", ("no-such-plan",)),
    "PlanExpired": _Kind("The plan has expired; nothing was applied.", ("plan-expired",)),
    "PlanOutdated": _Kind(
        "The cluster has changed since the plan was made; nothing was applied. `errors` carry the "
        "current values.",
        ("plan-outdated",),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "PlanBusy": _Kind(
        "Another owner holds what the plan would change; or another alteration of the same entity "
        "is in flight, or the request with the same idempotency key still runs, and `Location` is "
        "that alteration's. Nothing was sent. Or that request has ended, and not all of it was "
        "applied.",
        ("owner-conflict", "entity-busy", "idempotency-key-running", "outcome-superseded"),
        ("Maybe-Retry-After", "Recorded-Location", REPLAYED_HEADER),
    ),
    "CannotRevert": _Kind(
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
        "A rate limit of this service, or the broker throttles.",
        ("rate-limited", "throttled"),
        ("Retry-After",),
    ),
    "HeadersTooLarge": _Kind(
        "The path, the query and the headers have over 32 KiB together.", ("headers-too-large",)
    ),
    "OldBroker": _Kind("The broker is older than 2.6.", ("old-broker",)),
    "BrokerError": _Kind("The broker answered with an error or nonsense.", ("broker-error",)),
    "Unavailable": _Kind("A dependency cannot be reached; nothing was sent.", ("not-sent",)),
    "AlterationUnavailable": _Kind(
        "Either nothing was sent (`sent_to_cluster` is `no`), or the cluster has answered and its "
        "answer is not recorded yet (`yes`, `outcome-not-recorded`).",
        ("not-sent", "not-sent-recorded", "outcome-not-recorded"),
        ("Recorded-Location", REPLAYED_HEADER),
    ),
    "OutcomeUnknown": _Kind(
        "Sent, and the outcome is unknown; `Location` says where the truth will be.",
        ("outcome-unknown",),
        ("Location", REPLAYED_HEADER),
    ),
    "Unexpected": _Kind("Any other problem, such as a fault of this service.", ("fault",)),
}


def answer(description: str, content: Mapping[str, Any], *headers: str) -> Response:
    """Return an answer with its content by media type, and its headers."""
    document = {"description": description, "headers": headers_of(*headers)}
    return {**document, "content": dict(content)} if content else document


def body(schema: str, *examples: str) -> dict[str, Any]:
    """Return what one media type holds: the name of a schema, and of examples."""
    return {
        "schema": ref(schema),
        "examples": {name: ref(name, "examples") for name in examples},
    }


def json_answer(description: str, schema: str, *examples: str) -> Response:
    """Return an answer in JSON."""
    return answer(description, {JSON: body(schema, *examples)})


def _problem(kind: _Kind) -> Response:
    content = body("Problem", *(f"problem-{name}" for name in kind.examples))
    return answer(kind.description, {MEDIA_TYPE: content}, *kind.headers)


PROBLEM_RESPONSES: Final[Mapping[str, Response]] = {
    name: _problem(kind) for name, kind in _KINDS.items()
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


def problems(*names: str) -> dict[str, Response]:
    """Return problems by status, and any other as the default; the last of a status counts."""
    by_status = {_status(name): ref(name, "responses") for name in names}
    return {**by_status, "default": ref("Unexpected", "responses")}


def _status(name: str) -> str:
    return str(status_of(PROBLEM_ERRORS[_KINDS[name].examples[0]]).value)
