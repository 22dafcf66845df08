"""Which users have SCRAM credentials: their mechanisms and iterations, never a salt or a key."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What Kafka tells of a credential: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``, and iterations."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """A broker's answer.

    Attributes:
        users: By name, sorted; each has at least one credential.
        as_of: When the broker was asked (UTC).
        cluster_id: The cluster that it belongs to.
    """

    users: Mapping[str, tuple[ScramCredential, ...]]
    as_of: datetime
    cluster_id: str


class ScramCredentialSource(Protocol):
    """The brokers' DescribeUserScramCredentials (50)."""

    async def scram_users(self) -> ScramUsers:
        """Ask for every user that has credentials.

        Raises:
            NotSentError: No broker could be reached, or none answered in time.
            UnsupportedVersionError: The broker is older than 2.7.
            BrokerError: This service's own account lacks DESCRIBE on the cluster, or anything else.
        """
        ...
