"""What the use cases need from the outside: brokers, the audit log, the clock."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Outcome,
    Quotas,
    Values,
)
from app.domain.authorization import AclBinding
from app.domain.callers import Caller
from app.domain.entities import ClientQuotaEntity
from app.domain.filters import ClientQuotaFilter
from app.service.metrics_port import OpenIntents


@dataclass(frozen=True, slots=True)
class Described:
    """A broker's answer to a describe.

    Attributes:
        quotas: Every matching entity with its values.
        as_of: When the request was handed to the broker (UTC): the answer is at least that fresh
            as this broker's own image, never fresher than claimed.
        cluster_id: The cluster that the broker belongs to.
        broker_id: The broker that answered.
    """

    quotas: Quotas
    as_of: datetime
    cluster_id: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class EntityVerdict:
    """A broker's word on one entity: APPLIED (or VALIDATED), REFUSED or UNKNOWN."""

    outcome: Outcome
    error: KafkaRefusal | None = None
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class AlterAnswer:
    """A broker's answer to an alter: one verdict for each entity of the request.

    Attributes:
        verdicts: By entity; every entity of the request is present (one that the broker left
            out is UNKNOWN).
        broker_id: The broker that the request was sent through.
        sent_at: When the bytes were handed to the socket (UTC).
        answered_at: When the answer, or the certainty that none will come, was there (UTC).
        late: Where time ran out: what comes of listening on, up to 95 s after the sending; its
            verdicts are definite, or UNKNOWN again. Null otherwise.
    """

    verdicts: Mapping[ClientQuotaEntity, EntityVerdict]
    broker_id: int
    sent_at: datetime
    answered_at: datetime
    late: "Awaitable[AlterAnswer] | None" = None


class ClientQuotaAdmin(Protocol):
    """The brokers' quota API (DescribeClientQuotas 48, AlterClientQuotas 49)."""

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float = 5.0,
    ) -> Described:
        """Describe through one broker; only EXACT, DEFAULT and SPECIFIED components.

        Args:
            quota_filter: Already narrowed by ``ClientQuotaFilter.for_broker``.
            broker_id: The broker to ask; null picks one.
            timeout_s: The whole time allowed, connecting included.

        Raises:
            NotSentError: No broker could be reached, or none answered in time.
            ClusterAuthorizationError: This service's own account lacks DESCRIBE_CONFIGS.
            UnsupportedVersionError: The broker is older than 2.6.
            InvalidRequestError: The broker refused the filter.
            BrokerError: Anything else, nonsense included.
        """
        ...

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float = 15.0,
    ) -> AlterAnswer:
        """Alter through one broker, in one request, never repeated once it was sent.

        The values were judged already and are sent as float64. A lost, late or unreadable answer
        gives UNKNOWN verdicts, not an exception.

        Raises:
            NotSentError: Not one byte of the request was handed to a socket.
            UnsupportedVersionError: The broker is older than 2.6; nothing was sent.
        """
        ...

    async def live_brokers(self, *, timeout_s: float = 5.0) -> Sequence[int]:
        """Return the ids of the live brokers.

        Raises:
            NotSentError: No broker could be reached.
        """
        ...

    async def preferred_broker(self, *, timeout_s: float = 5.0) -> int:
        """Return the live broker that this process sticks to, so that its reads are monotonic.

        Raises:
            NotSentError: No broker could be reached.
        """
        ...

    async def cluster_id(self, *, timeout_s: float = 5.0) -> str:
        """Return the cluster's id, from memory once known.

        Raises:
            NotSentError: No broker could be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class AclSnapshot:
    """The ACLs of the Cluster resource.

    Attributes:
        bindings: Every ACL whose resource type is Cluster.
        taken_at: When the request was sent (UTC).
        age_s: Seconds since then, by the monotonic clock.
        has_authorizer: False where the cluster has none (SECURITY_DISABLED).
    """

    bindings: tuple[AclBinding, ...]
    taken_at: datetime
    age_s: float
    has_authorizer: bool = True


class ClusterAclSource(Protocol):
    """DescribeAcls on the cluster; a short-lived, bounded copy, refreshed by one task at a time."""

    async def cluster_acls(self, *, max_age_s: float) -> AclSnapshot:
        """Return a snapshot that is at most ``max_age_s`` old.

        Raises:
            NotSentError: No snapshot that young can be had; the caller must fail closed.
        """
        ...


class CallbackDetector(Protocol):
    """Whether brokers decide about quotas by code of their own. Source: KIP-257."""

    async def custom_callback(self) -> str | None:
        """Return ``client.quota.callback.class`` of a live broker, null if none is known."""
        ...


@dataclass(frozen=True, slots=True)
class AuditEntity:
    """One entity of an audited request: its place in the request, its operations, its values.

    ``before`` is null where it is not known. ``ops`` are those of the request, in order.
    """

    ordinal: int
    alteration: ClientQuotaAlteration
    before: Values | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Who asked for what: the part of the record that is known before anything is sent.

    Attributes:
        alteration_id: A UUIDv7; its time orders the log.
        cluster_id: The cluster concerned.
        caller: Principal, address and method.
        action: ``alter``, ``validate``, ``denied``, ``revert``, ``apply_plan`` or ``drift``.
        request_id: Of the HTTP request.
        entities: The entities that may reach the cluster; empty for a denied request whose body
            could not be read.
        local_refusals: Results by ordinal of entities that our own rules refused
            (``all_or_nothing`` false): part of the alteration's document, not of the log's rows.
        reason: The caller's own words, or null.
        decision: How authorization decided: rule, operation, age of the ACLs.
        options: ``all_or_nothing``, ``wait``, ``wait_ms``, ``validate_only``.
        broker_id: The broker chosen to send through, or null.
    """

    alteration_id: str
    cluster_id: str
    caller: Caller
    action: str
    request_id: str
    entities: tuple[AuditEntity, ...]
    local_refusals: Mapping[int, AlterationResult] = field(default_factory=dict)
    reason: str | None = None
    decision: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class AuditConclusion:
    """What became of the entities of an intent: results by ordinal, and the events on the way.

    ``events`` are (at, event, detail) with event ``sent``, ``outcome`` or ``recovery``.
    """

    alteration_id: str
    results: Mapping[int, AlterationResult]
    events: Sequence[tuple[datetime, str, str]] = ()


@dataclass(frozen=True, slots=True)
class AlterationRecord:
    """Everything that the log knows of one alteration.

    Attributes:
        request: As recorded.
        at: When the intent was committed.
        results: By ordinal, in request order, local refusals included; an entity without a
            conclusion yet is UNKNOWN once sent, or NOT_SENT.
        concluded: Whether every entity has a conclusion.
        history: (at, event, detail) in order: ``intent``, ``sent``, ``outcome``, ``recovery``.
    """

    request: AuditRequest
    at: datetime
    results: Mapping[int, AlterationResult]
    concluded: bool
    history: Sequence[tuple[datetime, str, str]]


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of ``GET /audit``: one entity of one recorded request.

    ``entity`` and ``ops`` are null for a denied request whose body could not be read.
    """

    alteration_id: str
    at: datetime
    principal: str
    authentication: str
    client_address: str
    action: str
    entity: ClientQuotaEntity | None
    ops: Sequence[Mapping[str, Any]] | None
    before: Values | None
    after: Values | None
    outcome: str
    reason: str | None
    request_id: str
    error: KafkaRefusal | None


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Conditions, ANDed; null means no condition. Newest first.

    ``after`` is the position (at, alteration_id, ordinal) of the last row of the page before.
    """

    entity: ClientQuotaFilter | None = None
    actor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    outcome: str | None = None
    action: str | None = None
    limit: int = 100
    after: tuple[datetime, str, int] | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Rows, and the position of the last one where more follow."""

    rows: Sequence[AuditRow]
    next_after: tuple[datetime, str, int] | None


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """An idempotency key: the SHA-256 of principal, cluster and key, and of what was asked."""

    key_hash: bytes
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class KeptKey:
    """What the log knows of an idempotency key that was used before."""

    alteration_id: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """What an intent takes with it, in the same transaction.

    Attributes:
        owner: The process that sends; its heartbeat tells whether it lives.
        entities: Whose slots are taken, each for this alteration alone; none for a request that
            changes nothing.
        key: The idempotency key, or null.
        supersedes: The alteration whose quarantined slots are taken over, or null.
    """

    owner: str
    entities: tuple[ClientQuotaEntity, ...]
    key: KeyClaim | None = None
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class KnownState:
    """The last audited state of an entity, and its age in seconds by the database's clock."""

    values: Values
    age_s: float


@dataclass(frozen=True, slots=True)
class Intent:
    """A committed intent.

    Attributes:
        at: The time that the log gave it, under the slots.
        known: The last audited state of the entities that have one.
    """

    at: datetime
    known: Mapping[ClientQuotaEntity, KnownState]


class KeyTakenError(Exception):
    """The idempotency key was used before; ``kept`` tells for what."""

    def __init__(self, kept: KeptKey) -> None:
        """Keep what is known of it."""
        super().__init__(kept.alteration_id)
        self.kept = kept


class AuditJournal(Protocol):
    """The append-only log. Every method raises ``NotSentError`` when Postgres does not do it."""

    async def record_intent(self, request: AuditRequest, claim: Claim) -> Intent:
        """Commit the intent, its slots and its key durably, all or none.

        Where the error's ``alteration_id`` is set, the log may hold the intent all the same.

        Raises:
            EntityBusyError: A slot is taken; ``alteration_id`` says by whom. Nothing was written.
            KeyTakenError: The idempotency key was used before. Nothing was written.
        """
        ...

    async def kept_key(self, key_hash: bytes) -> KeptKey | None:
        """Return what an idempotency key was used for, if it was and has not expired."""
        ...

    async def record_conclusion(self, conclusion: AuditConclusion) -> None:
        """Commit what became of an intent; at most one conclusion for each entity.

        In the same transaction slots are freed, or quarantined where the outcome is UNKNOWN, and
        the last audited state of what was applied is kept. Where nothing was sent, or all was
        throttled, the idempotency key is free again. Repeating it is safe.

        Raises:
            NotFoundError: The log has no such intent.
        """
        ...

    async def record_final(
        self, request: AuditRequest, results: Mapping[int, AlterationResult]
    ) -> datetime:
        """Commit a request that changed nothing and its results at once: denied or validated.

        A denied request without entities is one row without an entity.
        """
        ...

    async def alteration(self, alteration_id: str) -> AlterationRecord | None:
        """Return one alteration, or null where there is none."""
        ...

    async def audit_rows(self, query: AuditQuery) -> AuditPage:
        """Return one page of the log."""
        ...

    async def check_writable(self) -> None:
        """Prove that an intent could be written now, without leaving a trace."""
        ...


Place = tuple[str, int]
"""An entity of an alteration: the alteration's id, and the entity's ordinal in it."""


@dataclass(frozen=True, slots=True)
class OpenAlteration:
    """One entity of an alteration whose outcome is not known, claimed by one recovery.

    Attributes:
        audited: As in the intent: ordinal, operations, ``before`` as far as it was known.
        broker_id: The broker that it was sent through, or null.
        age_s: Seconds since the bytes can have been handed over at the latest, by the database's
            clock; negative where that moment has not come.
        quarantined: Whether its outcome was recorded as unknown; otherwise its owner died.
        observed: Whether a provisional verdict is in the log already.
    """

    alteration_id: str
    audited: AuditEntity
    cluster_id: str
    broker_id: int | None
    age_s: float
    quarantined: bool
    observed: bool

    @property
    def place(self) -> Place:
        """Which entity of which alteration."""
        return self.alteration_id, self.audited.ordinal


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery found for one entity.

    Attributes:
        outcome: ``applied``, ``not_applied``, ``observed_other``, ``refused`` or ``superseded``.
        final: Whether the slot is freed; otherwise it is what was observed so far.
        seen: The values that were seen, or null.
        evidence: Fences, broker, epochs, offsets, times.
    """

    alteration_id: str
    ordinal: int
    result: AlterationResult
    final: bool
    evidence: Mapping[str, Any]

    @property
    def place(self) -> Place:
        """Which entity of which alteration."""
        return self.alteration_id, self.ordinal


class RecoveryJournal(Protocol):
    """The part of the log that recovery works on; every method may raise ``NotSentError``."""

    async def beat(self, owner: str) -> None:
        """Say that the owner lives."""
        ...

    async def claim_open(self, owner: str, *, limit: int) -> Sequence[OpenAlteration]:
        """Claim entities without a known outcome whose owner is dead or has given them up.

        Quarantined ones, and open ones past their deadline with a dead owner. What another owner
        has claimed a short while ago is left out; what this one has claimed before is not, so one
        owner recovers one batch at a time.
        """
        ...

    async def open_intents(self) -> OpenIntents:
        """Return what has no definite outcome yet, of all processes."""
        ...

    async def record_recovery(self, recovered: Sequence[Recovered]) -> Mapping[Place, str]:
        """Add what was found to the log; free the slots and keep the states where it is final.

        All of it is one transaction, and repeating it is harmless.

        Returns:
            What was left as it is, and why: the log has another conclusion, or no such entity.
        """
        ...


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The metadata quorum, as its leader describes it. Source: DescribeQuorum (55).

    Attributes:
        leader_epoch: Changes with each leader.
        high_watermark: What is committed.
        log_ends: The log end offset of each node, voters and observers.
    """

    leader_epoch: int
    high_watermark: int
    log_ends: Mapping[int, int]


class MetadataQuorum(Protocol):
    """What tells whether a broker has seen everything that was committed."""

    async def quorum(self, *, broker_id: int | None = None, timeout_s: float = 2.0) -> QuorumState:
        """Ask through a broker.

        Raises:
            NotSentError: No answer in time.
            BarrierUnavailableError: The service's own account lacks DESCRIBE on the cluster.
        """
        ...


class BarrierUnavailableError(Exception):
    """DescribeQuorum is not permitted, so nothing that is read can be verified."""
