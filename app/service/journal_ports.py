"""What the use cases need of the audit log: intents with their claims, conclusions, rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from app.domain.alterations import AlterationResult, Values
from app.domain.entities import ClientQuotaEntity
from app.service.audit_records import (
    AlterationRecord,
    AuditConclusion,
    AuditPage,
    AuditQuery,
    AuditRequest,
)
from app.service.plans.plan_claims import OwnershipClaim


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
        send_within_s: How long after its transaction was begun it may still be handed over.
        owner: The process that sends; its heartbeat tells whether it lives.
        entities: Whose slots are taken, each for this alteration alone; none for a request that
            changes nothing.
        key: The idempotency key, or null.
        supersedes: The alteration whose quarantined slots are taken over, or null.
        ownership: Who will hold the keys if they are applied; null for what is no plan's.
    """

    send_within_s: float = field(kw_only=True)
    owner: str
    entities: tuple[ClientQuotaEntity, ...]
    key: KeyClaim | None = None
    supersedes: str | None = None
    ownership: OwnershipClaim | None = None


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
