"""What a broker's error code means: one table, the only place that knows the numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kafka.errors import kafka_errors

from app.domain.alterations import KafkaRefusal, Outcome
from app.domain.errors import (
    BrokerError,
    InvalidRequestError,
    QuotaError,
    Retry,
    TooManyRequestsError,
)


class Meaning(Enum):
    """What a code says about the request that it answers."""

    DONE = auto()
    INVALID = auto()
    NOT_AUTHORIZED = auto()
    THROTTLED = auto()
    UNCERTAIN = auto()


@dataclass(frozen=True, slots=True)
class KafkaCode:
    """A code's name, as Kafka spells it, and its meaning."""

    name: str | None
    meaning: Meaning


_CODES: Final[Mapping[int, KafkaCode]] = {
    -1: KafkaCode("UNKNOWN_SERVER_ERROR", Meaning.UNCERTAIN),
    0: KafkaCode("NONE", Meaning.DONE),
    7: KafkaCode("REQUEST_TIMED_OUT", Meaning.UNCERTAIN),
    13: KafkaCode("NETWORK_EXCEPTION", Meaning.UNCERTAIN),
    31: KafkaCode("CLUSTER_AUTHORIZATION_FAILED", Meaning.NOT_AUTHORIZED),
    35: KafkaCode("UNSUPPORTED_VERSION", Meaning.INVALID),
    40: KafkaCode("INVALID_CONFIG", Meaning.INVALID),
    41: KafkaCode("NOT_CONTROLLER", Meaning.UNCERTAIN),
    42: KafkaCode("INVALID_REQUEST", Meaning.INVALID),
    44: KafkaCode("POLICY_VIOLATION", Meaning.INVALID),
    54: KafkaCode("SECURITY_DISABLED", Meaning.INVALID),
    89: KafkaCode("THROTTLING_QUOTA_EXCEEDED", Meaning.THROTTLED),
}
"""Source: ``org.apache.kafka.common.protocol.Errors``.

UNCERTAIN codes are made by a broker that could not hear the controller's answer: an alteration
may have been applied (``ForwardingManager.onTimeout``).
"""


def kafka_code(code: int) -> KafkaCode:
    """Return name and meaning; a code outside the table is UNCERTAIN, nameless if unheard of."""
    if code in _CODES:
        return _CODES[code]
    unlisted = kafka_errors.get(code)
    return KafkaCode(unlisted.message if unlisted else None, Meaning.UNCERTAIN)


def code_name(code: int) -> str:
    """Return the code's name, or the number of a nameless one."""
    return kafka_code(code).name or str(code)


def alter_outcome(code: int, *, validate_only: bool) -> Outcome:
    """Return what a code says about one entity of an alteration."""
    match kafka_code(code).meaning:
        case Meaning.DONE:
            return Outcome.VALIDATED if validate_only else Outcome.APPLIED
        case Meaning.UNCERTAIN:
            return Outcome.UNKNOWN
        case Meaning.INVALID | Meaning.NOT_AUTHORIZED | Meaning.THROTTLED:
            return Outcome.REFUSED


def alter_refusal(code: int, text: str | None) -> KafkaRefusal | None:
    """Return why an entity was not applied, in the broker's words; null for success."""
    known = kafka_code(code)
    if known.meaning is Meaning.DONE:
        return None
    message = text or _wordless(code)
    if known.meaning is Meaning.NOT_AUTHORIZED:
        message = f"{message} {missing_acl('ALTER_CONFIGS')}"
    return KafkaRefusal(known.name, message)


def describe_error(code: int, text: str | None, throttle_time_ms: int) -> QuotaError:
    """Return the error for a describe that the broker answered with a code other than NONE."""
    known = kafka_code(code)
    detail = text or _wordless(code)
    match known.meaning:
        case Meaning.NOT_AUTHORIZED:
            return account_not_authorized("DESCRIBE_CONFIGS")
        case Meaning.INVALID:
            return InvalidRequestError(detail, kafka_error=known.name)
        case Meaning.THROTTLED:
            return TooManyRequestsError(
                detail,
                kafka_error=known.name,
                retry=Retry.SAFE,
                retry_after_s=throttle_time_ms / 1000,
            )
        case Meaning.UNCERTAIN | Meaning.DONE:
            return BrokerError(detail, kafka_error=known.name, retry=Retry.SAFE)


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
