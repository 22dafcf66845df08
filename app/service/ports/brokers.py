"""What the use cases need of the brokers: quotas, quorum, configuration, rights, credentials."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome, Quotas
from app.domain.authorization import AclBinding, Operation
from app.domain.callbacks.callback import CallbackModel, ClusterMetadata
from app.domain.callbacks.kafka_rules import KAFKA_RULES
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter

STANDSTILL_S: Final = 5.0
"""How long a process may stand still between its last look at the clock and the last byte."""


@dataclass(frozen=True, slots=True)
class QuotaChanges:
    """In what an answer differs from an earlier one.

    Attributes:
        base: The quotas of the earlier answer.
        changed: The whole values of each entity that differs; none where it is gone.
    """

    base: Quotas
    changed: Quotas


@dataclass(frozen=True, slots=True)
class Described:
    """A broker's answer to a describe.

    Attributes:
        as_of: When the request was handed to the broker (UTC): the answer is at least that fresh
            as this broker's own image, never fresher than claimed.
        changes: Since an earlier answer, where it was compared with one.
    """

    quotas: Quotas
    as_of: datetime
    cluster_id: str
    broker_id: int
    changes: QuotaChanges | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A broker's word on one entity: APPLIED (or VALIDATED), REFUSED or UNKNOWN."""

    outcome: Outcome
    error: KafkaRefusal | None = None
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Handover:
    """What a broker said to one request that was handed over: a verdict for each of its entities.

    Attributes:
        verdicts: By entity; every entity of the request is present (one that the broker left
            out is UNKNOWN).
        sent_at: When the bytes were handed to the socket (UTC).
        answered_at: When the answer, or the certainty that none will come, was there (UTC).
        late: Where time ran out: what comes of listening on, up to 95 s after the sending; its
            verdicts are definite, or UNKNOWN again. Null otherwise.
    """

    verdicts: Mapping[ClientQuotaEntity, Verdict]
    broker_id: int
    sent_at: datetime
    answered_at: datetime
    late: "Awaitable[Handover] | None" = None


class ClusterIdentity(Protocol):
    """Which cluster this process serves; another one never replaces it."""

    async def cluster_id(self, *, timeout_s: float | None = None) -> str:
        """Return the cluster's id, from memory once it was read.

        Raises:
            WrongClusterError: The brokers that answer are of another cluster.
            NotSentError: No broker could be reached.
        """


class QuotaReader(Protocol):
    """The brokers' API that reads quotas (DescribeClientQuotas 48).

    A time-out of null is that of the process; see ``Patience``.
    """

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Described:
        """Describe through one broker; only EXACT, DEFAULT and SPECIFIED components.

        Args:
            quota_filter: Already narrowed by ``ClientQuotaFilter.for_broker``.
            broker_id: The broker to ask; null picks one.
            timeout_s: The whole time allowed, connecting included.

        Raises:
            NotSentError: No broker could be reached, or none answered in time.
            UnsupportedVersionError: The broker is older than 2.6.
            InvalidRequestError: The broker refused the filter.
            BrokerError: This service's own account lacks DESCRIBE_CONFIGS, or anything else.
        """


class ClientQuotaAdmin(ClusterIdentity, QuotaReader, Protocol):
    """The brokers' quota API, the alterations included (AlterClientQuotas 49)."""

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float | None = None,
        send_by: float | None = None,
    ) -> Handover:
        """Alter through one broker, in one request, never repeated once it was sent.

        The values were judged already and are sent as float64. A lost, late or unreadable answer
        gives UNKNOWN verdicts, not an exception.

        Args:
            alterations: Of entities that differ.
            validate_only: Let the broker judge them, and change nothing.
            broker_id: The broker to ask; null picks one.
            timeout_s: The whole time allowed, connecting included.
            send_by: Until when it may be handed over, by ``boot_time``; a process that stands
                still between its last look at the clock and the last byte must not go on
                ``STANDSTILL_S`` later.

        Raises:
            NotSentError: Not one byte of the request was handed to a socket.
            UnsupportedVersionError: The broker is older than 2.6; nothing was sent.
        """

    async def live_brokers(self, *, timeout_s: float | None = None) -> Sequence[int]:
        """Return the ids of the live brokers, at least one.

        Raises:
            NotSentError: No broker could be reached, or none is live.
        """

    async def preferred_broker(self, *, timeout_s: float | None = None) -> int:
        """Return the live broker that this process sticks to, so that its reads are monotonic.

        Raises:
            NotSentError: No broker could be reached, or none is live.
        """


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The metadata quorum, as its leader describes it. Source: DescribeQuorum (55).

    Attributes:
        leader_epoch: Changes with each leader.
        high_watermark: The first offset of the metadata log that is not committed.
    """

    leader_epoch: int
    high_watermark: int


class MetadataQuorum(Protocol):
    """What tells whether a broker has seen everything that was committed."""

    async def quorum(
        self, *, broker_id: int | None = None, timeout_s: float | None = None
    ) -> QuorumState:
        """Ask through a broker.

        Raises:
            NotSentError: No answer in time.
            BarrierUnavailableError: The service's own account lacks DESCRIBE on the cluster.
        """

    async def published_offset(self, *, broker_id: int | None, timeout_s: float) -> int:
        """Return the last offset of the metadata log that a broker's answers rest on.

        Raises:
            NotSentError: No answer in time.
            BarrierUnavailableError: The broker does not report it.
        """


class BarrierUnavailableError(Exception):
    """Nothing that is read can be verified: a request is not permitted, or not known."""


@dataclass(frozen=True, slots=True)
class CallbackReports:
    """The ``client.quota.callback.class`` by which brokers decide about quotas. Source: KIP-257.

    Attributes:
        classes: By live broker, its last report; null is Kafka's own rules.
        silent: The live brokers that have never reported.
    """

    classes: Mapping[int, str | None] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()

    @property
    def custom(self) -> str | None:
        """The class of a broker that has one; null where none has, or none has reported."""
        return next((found for found in self.classes.values() if found), None)


DescribeCallbacks = Callable[[], Awaitable[CallbackReports]]
"""Asks every live broker for its callback."""

ModelNow = Callable[[], Awaitable[CallbackModel]]
"""Returns by what brokers decide about quotas."""


async def kafka_rules() -> CallbackModel:
    """Return Kafka's own rules."""
    return KAFKA_RULES


DescribeLeaders = Callable[[frozenset[str] | None], Awaitable[ClusterMetadata]]
"""Returns the leaders of some topics, null for all of them."""


class AclSnapshot(NamedTuple):
    """The ACLs of the Cluster resource.

    Attributes:
        has_authorizer: False where the cluster has none (SECURITY_DISABLED).
    """

    bindings: tuple[AclBinding, ...]
    has_authorizer: bool = True


@dataclass(frozen=True, slots=True)
class Rights:
    """What a broker says that a caller may do.

    Attributes:
        asked: How the broker was asked, in Kafka's words.
        age_s: Seconds since the question was sent, by the monotonic clock.
        has_authorizer: False where the cluster has none, so that everything is allowed.
    """

    allowed: bool
    asked: str
    age_s: float
    has_authorizer: bool = True


class ClusterRights(Protocol):
    """Asks a broker what the caller may do, as the caller; its answers are cached for a while."""

    async def rights(self, operation: Operation, *, max_age_s: float) -> Rights:
        """Return an answer that is at most ``max_age_s`` old.

        Raises:
            NotSentError: None that young can be had; the caller must fail closed.
        """

    def forget(self) -> None:
        """Answer from nothing that was asked before this call: a broker has refused the act."""


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
    """

    users: Mapping[str, tuple[ScramCredential, ...]]
    as_of: datetime
    cluster_id: str


DescribeScramUsers = Callable[[], Awaitable[ScramUsers]]
"""Asks a broker for every user that has credentials (DescribeUserScramCredentials 50)."""
