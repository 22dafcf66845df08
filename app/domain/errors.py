"""What can go wrong, in the words of Kafka and of this service; no numbers, no HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

MAX_VIOLATIONS: Final = 1_000
"""So many broken rules of one request are listed; then it is not read any further."""


class Sent(StrEnum):
    """Whether a request that changes something has left this service."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


class Retry(StrEnum):
    """Whether the caller may repeat the request."""

    SAFE = "safe"
    SAME_KEY_ONLY = "same-key-only"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule and its pointer.

    Attributes:
        pointer: A JSON pointer into the body, or the name of a query parameter.
        code: Kebab-case, stable.
        detail: A sentence for people that says what to do.
        kafka_error: What a broker would have answered, or null where the rule is ours alone.
        index: Which alteration of the request it concerns; null when it concerns the request.
        values: Further members for programs, such as the values that hold now.
        line: Of a text in the request, counted from 1; null where there is no text.
        budget: The budget that would be exceeded, its sum, and who holds most of it; or null.
    """

    pointer: str
    code: str
    detail: str
    kafka_error: str | None = None
    index: int | None = None
    values: Mapping[str, Any] | None = None
    line: int | None = None
    budget: Mapping[str, Any] | None = None


def pointer_token(name: str) -> str:
    """Return a member's name as it is written in a JSON pointer. Source: RFC 6901."""
    return name.replace("~", "~0").replace("/", "~1")


@dataclass(eq=False)
class QuotaError(Exception):
    """The root of every error that is reported to a caller.

    Attributes:
        code: Kebab-case name of the problem; the page ``/problems/<code>`` explains it.
        kafka_error: Kafka's name, or null.
        alteration_id: The audited alteration that the error belongs to, if it got that far.
        retry_after_s: When to come back, in seconds.
        results: The results for each entity where the alteration got that far.
        replayed: Whether this is what became of an earlier request with the same idempotency key.
    """

    detail: str
    code: str = ""
    kafka_error: str | None = None
    sent: Sent = Sent.NO
    retry: Retry = Retry.NEVER
    violations: Sequence[Violation] = ()
    alteration_id: str | None = None
    retry_after_s: float | None = None
    results: Sequence[Any] | None = field(default=None, repr=False)
    replayed: bool = False

    default_code = "internal-error"

    def __post_init__(self) -> None:
        """Fill in the class's own code and give the exception its text."""
        self.code = self.code or self.default_code
        Exception.__init__(self, self.detail)


class UnreadableRequestError(QuotaError):
    """The request cannot be read: not JSON, an unknown field, a wrong type."""

    default_code = "unreadable-request"


class BadPageTokenError(UnreadableRequestError):
    """The page token cannot be read, or is of another query."""

    default_code = "bad-page-token"

    def __init__(
        self,
        detail: str = "This page token is not one of this query's. Begin again without page_token.",
    ) -> None:
        violation = Violation("page_token", self.default_code, detail)
        super().__init__(detail, violations=[violation])


class InvalidRequestError(QuotaError):
    """The request can be read and breaks a rule of Kafka or of this service."""

    default_code = "invalid-request"


class UnauthenticatedError(QuotaError):
    """No valid credential.

    Attributes:
        method: Of authentication, which refused the credential; ``none`` where none was presented.
        schemes: What a caller may send instead, as ``WWW-Authenticate`` lists it.
    """

    default_code = "unauthenticated"
    method = "none"
    schemes: Sequence[str] = ("Bearer",)


class ClusterAuthorizationError(QuotaError):
    """The caller may not. Source: CLUSTER_AUTHORIZATION_FAILED (31)."""

    default_code = "cluster-authorization-failed"


class PolicyViolationError(ClusterAuthorizationError):
    """The cluster's ACLs would let the caller, and this service's own policy does not."""

    default_code = "policy-violation"


class NotFoundError(QuotaError):
    """Nothing here, or nothing that the caller may see."""

    default_code = "not-found"


class NoSuchEntityError(NotFoundError):
    """The entity of a path has no values, or its key names no entity."""

    default_code = "no-such-entity"


class ExpectationFailedError(QuotaError):
    """An ``expected`` value does not hold."""

    default_code = "expectation-failed"


class EntityBusyError(QuotaError):
    """Another alteration of the same entity is in flight."""

    default_code = "entity-busy"


class BeforeUnknownError(QuotaError):
    """An alteration cannot be taken back: the log does not prove what held before."""

    default_code = "before-unknown"


class OwnerConflictError(QuotaError):
    """Another owner holds a key that a plan would change."""

    default_code = "owner-conflict"


class PlanExpiredError(QuotaError):
    """The plan is too old to be applied."""

    default_code = "plan-expired"


class TooManyRequestsError(QuotaError):
    """A rate limit of this service or of the broker."""

    default_code = "too-many-requests"


@dataclass(eq=False)
class NotSentError(QuotaError):
    """The cluster or the audit log cannot be reached; nothing was sent, so repeating is safe."""

    retry: Retry = Retry.SAFE

    default_code = "not-sent"


@dataclass(eq=False)
class WrongClusterError(NotSentError):
    """The brokers that answer are of another cluster than the one that this process serves."""

    found: str = ""

    default_code = "wrong-cluster"


class OutcomeNotRecordedError(QuotaError):
    """The cluster has answered, the audit log has not stored the answer yet."""

    default_code = "outcome-not-recorded"


@dataclass(eq=False)
class UnknownOutcomeError(QuotaError):
    """Sent, and no definite answer; the change may have been applied."""

    sent: Sent = Sent.MAYBE
    retry: Retry = Retry.SAME_KEY_ONLY

    default_code = "outcome-unknown"


@dataclass(eq=False)
class OutcomeSupersededError(QuotaError):
    """Recovery found something else than what was asked for, or another alteration took over."""

    sent: Sent = Sent.MAYBE

    default_code = "outcome-superseded"


class UnsupportedVersionError(QuotaError):
    """The broker is older than 2.6 and has no quota API."""

    default_code = "unsupported-broker-version"


class CallbackFailedError(QuotaError):
    """A quota callback of the user's own raised an error, or returned what is none of its types."""

    default_code = "callback-failed"


class BrokerError(QuotaError):
    """Anything else that a broker says, with the broker's own text."""

    default_code = "broker-error"
