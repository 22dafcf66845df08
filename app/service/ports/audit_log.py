"""What the use cases need of the audit log: intents with their locks, outcomes, rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Quotas,
    Values,
)
from app.domain.entities import Caller, ClientQuotaEntity, ClientQuotaFilter
from app.service.ports.plans import OwnershipClaim


@dataclass(frozen=True, slots=True)
class AuditEntity:
    """One entity of an audited request: its position in the request, its operations, its values.

    ``before`` is null where nobody has read it. ``ops`` are those of the request, in order.
    """

    ordinal: int
    alteration: ClientQuotaAlteration
    before: Values | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Who asked for what, as it is recorded before anything is sent.

    Attributes:
        alteration_id: A UUIDv7; its time orders the log.
        action: ``alter``, ``validate``, ``denied``, ``revert``, ``apply_plan`` or ``drift``.
        entities: The entities that may reach the cluster; none for a denied attempt.
        local_refusals: Results by ordinal of entities that our own rules refused
            (``all_or_nothing`` false): in the alteration's document, not in the log's rows.
        reason: The caller's own words, or null.
        decision: How authorization decided: rule, operation, age of the ACLs.
        options: ``all_or_nothing``, ``wait``, ``wait_ms``, ``validate_only``, and ``plan``.
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
    """What became of the entities of an intent, and how the request was sent.

    Attributes:
        results: One for each entity, by ordinal.
        events: (at, event, detail) with event ``sent``, ``outcome`` or ``recovery``.
        sent: Whether a request that changes something was handed to a broker.
        broker_id: The broker that answered, or null.
        retry_after_s: Where the broker throttles, in seconds.
    """

    alteration_id: str
    results: Mapping[int, AlterationResult]
    events: Sequence[tuple[datetime, str, str]] = ()
    sent: bool = False
    broker_id: int | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class AlterationRecord:
    """Everything that the log knows of one alteration.

    Attributes:
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

    ``entity`` and ``ops`` are null for denied attempts; ``denied`` then has ``entities`` (how many
    were asked for), ``first`` (the first of them) and ``attempts``, and is null for other rows.
    ``plan`` is what the plan behind the request was: ``plan_id``, ``owner``, ``force``, and the
    owners from which keys of this entity were taken over, by key; null where there is none.
    """

    cluster_id: str
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
    plan: Mapping[str, Any] | None = None
    denied: Mapping[str, Any] | None = None


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
    cluster_id: str | None = None


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
class StoredKey:
    """What the log has of an idempotency key that was used before."""

    alteration_id: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Intent:
    """What is committed before anything is sent: the request, and what it takes with it.

    Attributes:
        owner: The process that sends; its heartbeat tells whether it is alive.
        key: The idempotency key, or null.
        supersedes: The alteration whose quarantined locks are taken over, or null.
        ownership: Who will hold the keys if they are applied; null for what is no plan's.
        rests_on: What is locked too, because what is changed depends on its values; it is free
            again with the last entity of the request.
        send_within_s: How long after its transaction was begun it may still be handed over.
        began: When that was at the earliest, by ``boot_time``.
    """

    request: AuditRequest
    owner: str
    key: KeyClaim | None = None
    supersedes: str | None = None
    ownership: OwnershipClaim | None = None
    rests_on: tuple[ClientQuotaEntity, ...] = ()
    send_within_s: float = field(kw_only=True)
    began: float = 0.0

    @property
    def locks(self) -> dict[int, ClientQuotaEntity]:
        """What is locked, by ordinal: from -2 down what the request only rests on.

        The log has no events of those, and nothing is to be recovered.
        """
        entities = {audited.ordinal: audited.alteration.entity for audited in self.request.entities}
        return entities | {-2 - n: entity for n, entity in enumerate(self.rests_on)}

    @property
    def send_by(self) -> float:
        """Until when it may be handed over, by ``boot_time``."""
        return self.began + self.send_within_s


class KeyTakenError(Exception):
    """The idempotency key was used before; ``stored`` tells for what."""

    def __init__(self, stored: StoredKey) -> None:
        """Carry what the log has of it."""
        super().__init__(stored.alteration_id)
        self.stored = stored


class AuditJournal(Protocol):
    """The append-only log. Every method raises ``NotSentError`` when Postgres does not do it."""

    async def record_intent(self, intent: Intent) -> Intent:
        """Commit the intent, its locks and its key durably, all or none; return it.

        Where the error's ``alteration_id`` is set, the log fell silent during the commit: it may
        hold the intent all the same, and then it wants a conclusion.

        Raises:
            EntityBusyError: A lock is taken; ``alteration_id`` says by which. Nothing was written.
            KeyTakenError: The idempotency key was used before. Nothing was written.
        """

    async def recent_values(self, intent: Intent) -> Quotas:
        """Return what was applied within 60 s before, of what a committed intent has locked."""

    async def stored_key(self, key_hash: bytes) -> StoredKey | None:
        """Return what an idempotency key was used for, if it was and has not expired."""

    async def record_conclusion(self, conclusion: AuditConclusion) -> None:
        """Commit what became of an intent; at most one conclusion for each entity.

        In the same transaction locks are freed, or quarantined where the outcome is UNKNOWN, and
        the last audited state of what was applied is stored. Where nothing was sent, or all was
        throttled, the idempotency key is free again. Repeating it is safe.

        Raises:
            NotFoundError: The log has no such intent.
            ValueError: The log has another outcome for some of the entities; it stands, and the
                rest is recorded.
        """

    async def record_final(
        self, request: AuditRequest, results: Mapping[int, AlterationResult]
    ) -> datetime:
        """Commit a request that changed nothing and its results at once: denied or validated.

        A denied request without entities is one row without an entity.
        """

    async def alteration(self, alteration_id: str) -> AlterationRecord | None:
        """Return one alteration, or null where there is none."""

    async def audit_rows(self, query: AuditQuery) -> AuditPage:
        """Return one page of the log."""

    async def check_writable(self) -> None:
        """Prove that an intent could be written now, without leaving a trace."""
