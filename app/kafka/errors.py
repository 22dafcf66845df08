"""What goes wrong with brokers: their error codes, answers that are lost, brokers out of reach."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kafka.errors import kafka_errors

from app.domain.alterations import KafkaRefusal, Outcome
from app.domain.errors import (
    BrokerError,
    InvalidRequestError,
    NotSentError,
    QuotaError,
    Retry,
    TooManyRequestsError,
)


class CodeKind(Enum):
    """What a code says about the request that it answers."""

    DONE = auto()
    INVALID = auto()
    NOT_AUTHORIZED = auto()
    THROTTLED = auto()
    UNCERTAIN = auto()


@dataclass(frozen=True, slots=True)
class KafkaCode:
    """A code's name, as Kafka spells it, and its kind."""

    name: str | None
    kind: CodeKind


_CODES: Final[Mapping[int, KafkaCode]] = {
    -1: KafkaCode("UNKNOWN_SERVER_ERROR", CodeKind.UNCERTAIN),
    0: KafkaCode("NONE", CodeKind.DONE),
    7: KafkaCode("REQUEST_TIMED_OUT", CodeKind.UNCERTAIN),
    13: KafkaCode("NETWORK_EXCEPTION", CodeKind.UNCERTAIN),
    31: KafkaCode("CLUSTER_AUTHORIZATION_FAILED", CodeKind.NOT_AUTHORIZED),
    35: KafkaCode("UNSUPPORTED_VERSION", CodeKind.INVALID),
    40: KafkaCode("INVALID_CONFIG", CodeKind.INVALID),
    41: KafkaCode("NOT_CONTROLLER", CodeKind.UNCERTAIN),
    42: KafkaCode("INVALID_REQUEST", CodeKind.INVALID),
    44: KafkaCode("POLICY_VIOLATION", CodeKind.INVALID),
    54: KafkaCode("SECURITY_DISABLED", CodeKind.INVALID),
    89: KafkaCode("THROTTLING_QUOTA_EXCEEDED", CodeKind.THROTTLED),
}
"""Source: ``org.apache.kafka.common.protocol.Errors``.

UNCERTAIN codes are made by a broker that could not hear the controller's answer: an alteration
may have been applied (``ForwardingManager.onTimeout``).
"""


def kafka_code(code: int) -> KafkaCode:
    """Return name and kind; a code outside the table is UNCERTAIN, nameless if unheard of."""
    if code in _CODES:
        return _CODES[code]
    unlisted = kafka_errors.get(code)
    return KafkaCode(unlisted.message if unlisted else None, CodeKind.UNCERTAIN)


def code_name(code: int) -> str:
    """Return the code's name, or the number of a nameless one."""
    return kafka_code(code).name or str(code)


def alter_outcome(code: int, *, validate_only: bool) -> Outcome:
    """Return what a code says about one entity of an alteration."""
    match kafka_code(code).kind:
        case CodeKind.DONE:
            return Outcome.VALIDATED if validate_only else Outcome.APPLIED
        case CodeKind.UNCERTAIN:
            return Outcome.UNKNOWN
        case CodeKind.INVALID | CodeKind.NOT_AUTHORIZED | CodeKind.THROTTLED:
            return Outcome.REFUSED


def alter_refusal(code: int, text: str | None) -> KafkaRefusal | None:
    """Return why an entity was not applied, in the broker's words; null for success."""
    entry = kafka_code(code)
    if entry.kind is CodeKind.DONE:
        return None
    message = text or _wordless(code)
    if entry.kind is CodeKind.NOT_AUTHORIZED:
        message = f"{message} {missing_acl('ALTER_CONFIGS')}"
    return KafkaRefusal(entry.name, message)


def describe_error(code: int, text: str | None, throttle_time_ms: int) -> QuotaError:
    """Return the error for a describe that the broker answered with a code other than NONE."""
    entry = kafka_code(code)
    detail = text or _wordless(code)
    match entry.kind:
        case CodeKind.NOT_AUTHORIZED:
            return account_not_authorized("DESCRIBE_CONFIGS")
        case CodeKind.INVALID:
            return InvalidRequestError(detail, kafka_error=entry.name)
        case CodeKind.THROTTLED:
            return TooManyRequestsError(
                detail,
                kafka_error=entry.name,
                retry=Retry.SAFE,
                retry_after_s=throttle_time_ms / 1000,
            )
        case CodeKind.UNCERTAIN | CodeKind.DONE:
            return BrokerError(detail, kafka_error=entry.name, retry=Retry.SAFE)


def account_not_authorized(operation: str) -> BrokerError:
    """Return the error for a refusal of this service's own account; it names the missing ACL."""
    return BrokerError(
        missing_acl(operation),
        code="service-account-not-authorized",
        kafka_error="CLUSTER_AUTHORIZATION_FAILED",
    )


def missing_acl(operation: str) -> str:
    """Say which ACL the service's own account lacks."""
    return (
        "The broker refused this service's own account: give it "
        f"ALLOW {operation} on Cluster kafka-cluster."
    )


def _wordless(code: int) -> str:
    return f"The broker answered with error code {code} and no text."


class Loss(Enum):
    """Why the answer to a request that was handed over will not come."""

    CLOSED = auto()
    TOO_LARGE = auto()
    UNREADABLE = auto()


class AnswerLostError(Exception):
    """The request was handed over, and its answer will not come on this connection."""

    def __init__(self, loss: Loss, detail: str) -> None:
        super().__init__(detail)
        self.loss = loss
        self.detail = detail

    def as_read(self) -> BrokerError | NotSentError:
        """Return the error for a request that only reads."""
        match self.loss:
            case Loss.CLOSED:
                return unreachable(f"No broker answered: {self.detail}")
            case Loss.TOO_LARGE:
                return BrokerError(self.detail, code="broker-answer-too-large")
            case Loss.UNREADABLE:
                detail = f"The broker's answer cannot be read: {self.detail}"
                return BrokerError(detail, code="broker-answer-unreadable", retry=Retry.SAFE)


UNREACHABLE: Final = "cluster-unreachable"
"""The code of every ``NotSentError`` that is about the brokers."""


def unreachable(detail: str) -> NotSentError:
    """Return the error for a request that no broker can have."""
    return NotSentError(detail, code=UNREACHABLE)
