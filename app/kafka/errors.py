"""What goes wrong with brokers: their error codes, answers that are lost, brokers out of reach."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from kafka.errors import kafka_errors

from app.domain.alterations import KafkaRefusal
from app.domain.errors import (
    BrokerError,
    InvalidRequestError,
    NotSentError,
    QuotaError,
    Retry,
    TooManyRequestsError,
)

NOT_AUTHORIZED: Final = "CLUSTER_AUTHORIZATION_FAILED"

UNAUTHORIZED: Final = 31
THROTTLED: Final = 89
INVALID: Final = frozenset({35, 40, 42, 44, 54})
"""UNSUPPORTED_VERSION, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION, SECURITY_DISABLED.

Source: ``org.apache.kafka.common.protocol.Errors``. Any other code leaves it open, such as those of
a broker that could not hear the controller's answer: an alteration may have been applied
(``ForwardingManager.onTimeout``).
"""

_OTHER_NAMES: Final[Mapping[int, str]] = {-1: "UNKNOWN_SERVER_ERROR", 0: "NONE"}
"""Kafka's names where kafka-python has others."""


def _name(code: int) -> str | None:
    error = kafka_errors.get(code)
    return _OTHER_NAMES.get(code, error.message if error else None)


def code_name(code: int) -> str:
    """Return the code's name as Kafka spells it, or the number of a nameless one."""
    return _name(code) or str(code)


def refusal(code: int, text: str | None) -> KafkaRefusal:
    """Return a code other than NONE by its name, in the broker's words if it has any."""
    wordless = f"The broker answered with error code {code} and no text."
    return KafkaRefusal(_name(code), text or wordless)


def describe_error(code: int, text: str | None, throttle_time_ms: int) -> QuotaError:
    """Return the error for a describe that the broker answered with a code other than NONE."""
    refused = refusal(code, text)
    detail, name = refused.message, refused.kafka_error
    if code == UNAUTHORIZED:
        return account_not_authorized("DESCRIBE_CONFIGS")
    if code == THROTTLED:
        return TooManyRequestsError(
            detail, kafka_error=name, retry=Retry.SAFE, retry_after_s=throttle_time_ms / 1000
        )
    if code in INVALID:
        return InvalidRequestError(detail, kafka_error=name)
    return BrokerError(detail, kafka_error=name, retry=Retry.SAFE)


def account_not_authorized(operation: str) -> BrokerError:
    """Return the error for a refusal of this service's own account; it names the missing ACL."""
    return BrokerError(
        missing_acl(operation), code="service-account-not-authorized", kafka_error=NOT_AUTHORIZED
    )


def missing_acl(operation: str) -> str:
    """Say which ACL the service's own account lacks."""
    return (
        "The broker refused this service's own account: give it "
        f"ALLOW {operation} on Cluster kafka-cluster."
    )


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
"""The code of a ``NotSentError`` where no broker answers."""


def unreachable(detail: str) -> NotSentError:
    """Return the error for a request that no broker can have."""
    return NotSentError(detail, code=UNREACHABLE)
