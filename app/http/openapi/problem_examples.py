"""Examples of problems, made by what makes the real ones."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    BadPageTokenError,
    BrokerError,
    ClusterAuthorizationError,
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    NotFoundError,
    NotSentError,
    OutcomeNotRecordedError,
    OutcomeSupersededError,
    OwnerConflictError,
    PlanExpiredError,
    PolicyViolationError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnauthenticatedError,
    UnknownOutcomeError,
    UnreadableRequestError,
    UnsupportedVersionError,
    Violation,
)
from app.domain.filters import ClientQuotaFilter, ClientQuotaFilterComponent, filter_violations
from app.domain.pipeline_runs import run_violations
from app.domain.validation import judge
from app.http.errors import (
    BodyTooLargeError,
    HeadersTooLargeError,
    InvalidTokenError,
    NotAcceptableError,
    RateLimitedError,
    RequestTimeoutError,
    UnsupportedMediaTypeError,
)
from app.http.openapi import example_values as given
from app.http.problems import problem_document
from app.service.alterations.alteration_command import refusal_violations

_BAD_ALTERATIONS: Final = (
    ClientQuotaAlteration(
        ClientQuotaEntity.of({"user": "alice"}), (Op(given.PRODUCER, Decimal("0.5")),)
    ),
    ClientQuotaAlteration(
        ClientQuotaEntity.of({"ip": "localhost"}), (Op(given.CONNECTIONS, remove=True),)
    ),
)

_BAD_FILTER: Final = ClientQuotaFilter(
    (
        ClientQuotaFilterComponent.of_entity("ip", "10.0.0.1"),
        ClientQuotaFilterComponent.of_entity_type("group"),
    )
)

_REFUSED: Final = (given.HELD_BACK, given.REFUSED)

_UNREADABLE: Final = (
    Violation("/alterations/0/ops/0/value", "wrong-type", "This must be a number, not a string."),
    Violation(
        "/alterations/0/opps",
        "unknown-field",
        "Unknown field 'opps'; known are entity, expected, ops.",
    ),
)

_EXPECTED: Final = (
    Violation(
        "/alterations/0/expected",
        "expectation-failed",
        f"Not as expected: {given.PRODUCER}.",
        values={"current": given.BEFORE},
    ),
)

PROBLEM_ERRORS: Final[Mapping[str, QuotaError]] = {
    "unreadable": UnreadableRequestError(
        "The body cannot be read; see errors for each place.", violations=_UNREADABLE
    ),
    "page-token": BadPageTokenError(),
    "bad-idempotency-key": UnreadableRequestError(
        "Give one Idempotency-Key of 1 to 255 printable ASCII characters.",
        code="bad-idempotency-key",
    ),
    "bad-supersede": UnreadableRequestError(
        "Supersede takes the id of one alteration.", code="bad-supersede"
    ),
    "no-credential": UnauthenticatedError("Send the header Authorization: Bearer with a token."),
    "bad-credential": InvalidTokenError("The token has expired."),
    "not-authorized": ClusterAuthorizationError(
        "User:mallory at 10.0.0.7 lacks ALTER_CONFIGS on the Cluster resource kafka-cluster.",
        kafka_error="CLUSTER_AUTHORIZATION_FAILED",
    ),
    "no-authorizer": ClusterAuthorizationError(
        "The cluster has no authorizer, so nobody's rights can be judged.",
        code="no-authorizer",
        kafka_error="SECURITY_DISABLED",
    ),
    "policy-violation": PolicyViolationError(
        "The policy of this service does not let you change all of that; nothing was sent. Every "
        "place is listed in errors.",
        violations=[
            Violation(
                "/alterations/0/ops/0/value",
                "value-out-of-range",
                "The value is outside of what you may set: from 1024 up to 52428800.",
            )
        ],
    ),
    "not-found": NotFoundError("There is no such alteration, or it is not yours."),
    "no-run": NotFoundError(
        "No run of the pipeline has published this yet: queue one with POST /analytics/runs, or "
        "run `quota-pipeline run --pg`.",
        code="no-run",
    ),
    "no-such-bucket": NotFoundError(
        "There is no such bucket; GET /analytics/utilization lists them."
    ),
    "not-acceptable": NotAcceptableError(
        "Accept one of application/json, application/x-ndjson, text/csv, application/yaml."
    ),
    "body-too-slow": RequestTimeoutError("The body did not arrive within 30 seconds."),
    "entity-busy": EntityBusyError(
        'Another alteration of {"user":"alice"} is in flight; nothing was sent. Try again when '
        "it is done.",
        retry=Retry.SAFE,
        retry_after_s=1,
    ),
    "idempotency-key-running": EntityBusyError(
        "The request with this idempotency key is still running; ask again.",
        code="idempotency-key-running",
        retry=Retry.SAME_KEY_ONLY,
        alteration_id=given.ALTERATION_ID,
        retry_after_s=1,
    ),
    "outcome-superseded": OutcomeSupersededError(
        "Not everything was applied as asked for: see results for what was found.",
        alteration_id=given.ALTERATION_ID,
        results=(given.OBSERVED_OTHER,),
        replayed=True,
    ),
    "expectation-failed": ExpectationFailedError(
        "The present values are not the expected ones; nothing was applied.",
        violations=_EXPECTED,
        alteration_id=given.ALTERATION_ID,
    ),
    "body-too-large": BodyTooLargeError("The body has over 8388608 bytes; split the request."),
    "not-json": UnsupportedMediaTypeError(
        "Send the body as JSON in UTF-8: Content-Type: application/json."
    ),
    "bad-parameter": InvalidRequestError(
        "The query breaks a rule.",
        violations=(Violation("for", "unknown-word", "'read' is unknown; for is one of write."),),
    ),
    "bad-filter": InvalidRequestError(
        "The filter breaks a rule of the broker.", violations=filter_violations(_BAD_FILTER)
    ),
    "bad-run": InvalidRequestError(
        "The run breaks a rule; nothing was queued.",
        violations=run_violations("run", {"out": "../elsewhere", "master": "yarn"}),
    ),
    "no-identity": InvalidRequestError(
        "The request breaks a rule; every violation is listed in errors.",
        violations=(
            Violation(
                "user",
                "identity-without-user",
                "Name a user (an unauthenticated connection is ANONYMOUS), or an ip.",
            ),
        ),
    ),
    "bad-alterations": InvalidRequestError(
        "The request breaks rules of Kafka or of this service; nothing was sent. Every violation "
        "is listed in errors.",
        violations=judge(_BAD_ALTERATIONS, {}).violations,
    ),
    "no-alterations": InvalidRequestError(
        "The request breaks rules of Kafka or of this service; nothing was sent. Every violation "
        "is listed in errors.",
        code="no-alterations",
        violations=judge((), {}).violations,
    ),
    "refused-by-broker": InvalidRequestError(
        "Nothing was applied: 10.0.0.1 is not a valid IP or resolvable host.",
        code="refused-by-broker",
        violations=refusal_violations(dict(enumerate(_REFUSED))),
        alteration_id=given.ALTERATION_ID,
        results=_REFUSED,
    ),
    "idempotency-key-reused": InvalidRequestError(
        "This idempotency key was used for another request; choose a new one.",
        code="idempotency-key-reused",
    ),
    "bad-plan": InvalidRequestError(
        "The plan breaks rules of Kafka or of this service; every violation is listed.",
        violations=(
            Violation(
                "/document/quotas/1/entity",
                "outside-scope",
                "This entity is outside the scope; widen the scope or leave the entity out.",
            ),
        ),
    ),
    "no-such-plan": NotFoundError("There is no such plan, or it expired a day ago or earlier."),
    "plan-expired": PlanExpiredError("The plan has expired; plan again."),
    "plan-outdated": ExpectationFailedError(
        "The cluster has changed since the plan was made; nothing was applied. Plan again.",
        code="plan-outdated",
        violations=(
            Violation(
                "/changes/0",
                "plan-outdated",
                f"Not as expected: {given.PRODUCER}.",
                values={"current": given.BEFORE},
            ),
        ),
        alteration_id=given.ALTERATION_ID,
    ),
    "owner-conflict": OwnerConflictError(
        "Another owner holds what the plan would change; nothing was applied.",
        violations=(
            Violation(
                "/conflicts/0",
                "owner-conflict",
                f'{given.PRODUCER} of {{"user":null}} is held by platform.',
                values={"owner": "platform", "current": {given.PRODUCER: 1000.0}},
            ),
        ),
    ),
    "nothing-to-revert": InvalidRequestError(
        "Nothing of this is known to have changed the cluster.", code="nothing-to-revert"
    ),
    "not-concluded": InvalidRequestError(
        "Its outcome is not known yet; ask for it again.", code="not-concluded"
    ),
    "cannot-be-restored": InvalidRequestError(
        f"{given.PRODUCER} was NaN before, which this service does not write.",
        code="cannot-be-restored",
    ),
    "rate-limited": RateLimitedError(
        "User:alice sends more than 500 alterations a second.", retry_after_s=1
    ),
    "throttled": TooManyRequestsError(
        "The broker throttles.",
        kafka_error="THROTTLING_QUOTA_EXCEEDED",
        retry=Retry.SAFE,
        retry_after_s=1,
    ),
    "headers-too-large": HeadersTooLargeError(
        "The path, the query and the headers have over 32768 bytes."
    ),
    "fault": QuotaError("A fault of this service; report the request id."),
    "old-broker": UnsupportedVersionError("The broker is older than 2.6 and has no quota API."),
    "broker-error": BrokerError(
        "The broker answered with error code -1 and no text.",
        kafka_error="UNKNOWN_SERVER_ERROR",
        retry=Retry.SAFE,
    ),
    "not-sent": NotSentError("No broker could be reached."),
    "not-sent-recorded": NotSentError(
        "No broker could be reached.",
        alteration_id=given.ALTERATION_ID,
        results=(given.NOT_SENT,),
    ),
    "outcome-not-recorded": OutcomeNotRecordedError(
        "The cluster has answered; its answer is not in the audit log yet.",
        sent=Sent.YES,
        alteration_id=given.ALTERATION_ID,
        results=(given.APPLIED,),
    ),
    "outcome-unknown": UnknownOutcomeError(
        "The request was sent and no definite answer came; it may have been applied.",
        alteration_id=given.ALTERATION_ID,
        results=(given.UNKNOWN,),
    ),
}
"""By the name of the example."""


def _example(error: QuotaError) -> dict[str, Any]:
    document = problem_document(error, given.REQUEST_ID, "/quotas/alterations")
    return {"summary": document["title"], "value": document}


PROBLEM_EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    f"problem-{name}": _example(error) for name, error in PROBLEM_ERRORS.items()
}
