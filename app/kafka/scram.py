"""The port ``ScramCredentialSource``: DescribeUserScramCredentials (50). Source: KIP-554."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kafka.protocol.admin import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from app.domain.errors import QuotaError
from app.kafka.cluster_client import Brokers
from app.kafka.connection import ask, newest_common
from app.kafka.errors import account_not_authorized, code_name, describe_error
from app.kafka.pool import BrokerLease
from app.service.ports.brokers import ScramCredential, ScramUsers

_LARGEST_ANSWER_BYTES: Final = 16_000_000
_NOT_AUTHORIZED: Final = "CLUSTER_AUTHORIZATION_FAILED"

_MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Source: ``org.apache.kafka.clients.admin.ScramMechanism``."""


class KafkaScramCredentials:
    """Asks a broker each time: nothing is cached."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._timeout_s = brokers.patience.broker_answer_s

    async def scram_users(self) -> ScramUsers:
        """See ``ScramCredentialSource``."""
        return await self._brokers.read(_describe, timeout_s=self._timeout_s)


async def _describe(lease: BrokerLease) -> ScramUsers:
    # An empty list means every user, as null does. A broker that refuses a list of null ends in a
    # NullPointerException and sends no response (release 4.3.1).
    request = DescribeUserScramCredentialsRequest(users=[])
    version = newest_common(lease.connection, DescribeUserScramCredentialsRequest)
    as_of = datetime.now(UTC)
    answer = await ask(
        lease.connection,
        request,
        version,
        DescribeUserScramCredentialsResponse,
        _LARGEST_ANSWER_BYTES,
    )
    if answer.error_code:
        lease.connection.note_error(code_name(answer.error_code))
        raise _refusal(answer)
    users = {
        result.user: tuple(sorted(map(_credential, result.credential_infos), key=_mechanism))
        for result in sorted(answer.results, key=_name)
        if not result.error_code
    }
    return ScramUsers(users, as_of, lease.cluster_id)


def _name(result: Any) -> str:
    return str(result.user)


def _mechanism(credential: ScramCredential) -> str:
    return credential.mechanism


def _credential(info: Any) -> ScramCredential:
    return ScramCredential(_MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations)


def _refusal(answer: Any) -> QuotaError:
    if code_name(answer.error_code) == _NOT_AUTHORIZED:
        return account_not_authorized("DESCRIBE")
    return describe_error(answer.error_code, answer.error_message, answer.throttle_time_ms)
