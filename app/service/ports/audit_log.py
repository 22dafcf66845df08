"""What the use cases need of the audit log: intents with their locks, outcomes, recovery, drift."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Quotas,
    Values,
)
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter
from app.service.ports.alterations import Alteration, AlterationRecord, Change, Conclusion


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of ``GET /audit``: one entity of one recorded request.

    ``entity`` and ``ops`` are null for denied attempts; ``denied`` then has ``entities`` (how many
    were asked for), ``first`` (the first of them) and ``attempts``, and is null for other rows.
    ``plan`` is what the plan behind the request was: ``plan_id``, ``owner``, ``force``, and the
    owners from which keys of this entity were taken over, by key; null where there is none.
    ``expires_at`` is when what it set was to end as it was asked for, ``expires`` the alteration
    whose values it ended.
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
    expires_at: datetime | None = None
    expires: str | None = None


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
    """Rows, and the position of the last one where more follow.

    Attributes:
        restricted_to: The principal whose rows alone are listed; null: everybody's.
    """

    rows: Sequence[AuditRow]
    next_after: tuple[datetime, str, int] | None
    restricted_to: str | None = None


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What the log has of an idempotency key that was used before."""

    alteration_id: str
    fingerprint: bytes


class KeyTakenError(Exception):
    """The idempotency key was used before; ``stored`` tells for what."""

    def __init__(self, stored: StoredKey) -> None:
        """Carry what the log has of it."""
        super().__init__(stored.alteration_id)
        self.stored = stored


class AuditJournal(Protocol):
    """The append-only log. Every method raises ``NotSentError`` when Postgres does not do it."""

    async def record_intents(self, intents: Sequence[Alteration]) -> Sequence[Exception | None]:
        """Commit intents, each with its locks and its key durably, all of it or none.

        They are in one transaction as far as they can be; no two have an entity or a key in common.

        Returns:
            For each intent null, or why it was not written: ``EntityBusyError``, where a lock is
            taken (``alteration_id`` says by which), ``KeyTakenError``, or ``NotSentError``. Where
            the last one's ``alteration_id`` is set, the log fell silent during the commit: it may
            hold the intent all the same, and then it wants a conclusion.
        """

    async def record_returns(self, intents: Sequence[Alteration]) -> None:
        """Commit what each key of alterations for a time is to return to: what held before.

        Their intents are committed, and nothing is sent yet: so that whoever concludes them knows
        it.
        """

    async def recent_values(self, intent: Alteration) -> Quotas:
        """Return what was applied within 60 s before, of what a committed intent has locked.

        And of what its budgets cover.
        """

    async def stored_key(self, key_hash: bytes) -> StoredKey | None:
        """Return what an idempotency key was used for, if it was and has not expired."""

    async def record_conclusions(
        self, conclusions: Sequence[Conclusion]
    ) -> Sequence[Exception | None]:
        """Commit what became of intents; at most one conclusion for each entity.

        In the same transaction locks are freed, or quarantined where the outcome is UNKNOWN, and
        the last audited state of what was applied is stored. Where nothing was sent, or all was
        throttled, the idempotency key is free again. Repeating it is safe.

        Returns:
            For each conclusion null, or what is wrong with it: ``NotFoundError``, where the log has
            no such intent; ``ValueError``, where the log has another outcome for some of the
            entities, which stands, and the rest is recorded; ``NotSentError``.
        """

    async def record_final(
        self, alteration: Alteration, results: Mapping[int, AlterationResult]
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


RecoveryKey = tuple[str, int]
"""An entity of an alteration: the alteration's id, and the entity's ordinal in it."""


@dataclass(frozen=True, slots=True)
class OpenAlteration:
    """One entity of an alteration without a definite outcome, claimed by one recovery.

    Attributes:
        change: As in the intent; ``before`` is what the owner has read under its lock, null where
            it did not come to record that.
        broker_id: The broker that it was sent through, or null.
        age_s: Seconds since the bytes can have been handed over at the latest, by the database's
            clock; negative where that time has not come.
        last_audited: What the log had last of the entity when it was locked; null where nothing.
            Another tool may have changed it since.
    """

    alteration_id: str
    change: Change
    broker_id: int | None
    age_s: float
    last_audited: Values | None = None

    @property
    def key(self) -> RecoveryKey:
        """Which entity of which alteration."""
        return self.alteration_id, self.change.ordinal


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery found for one entity.

    Attributes:
        final: Whether the lock is freed; otherwise it is what was observed so far.
        evidence: Fences, broker, epochs, offsets, times.
    """

    alteration_id: str
    ordinal: int
    result: AlterationResult
    final: bool
    evidence: Mapping[str, Any]

    @property
    def key(self) -> RecoveryKey:
        """Which entity of which alteration."""
        return self.alteration_id, self.ordinal


class OpenIntents(NamedTuple):
    """What has no definite outcome yet, of all processes.

    Attributes:
        number: Entities of alterations that were recorded and not concluded.
        oldest_s: The age of the oldest one, in seconds; 0 where there is none.
        quarantined: How many of them were sent and have no definite answer.
    """

    number: int
    oldest_s: float
    quarantined: int


class RecoveryJournal(Protocol):
    """What recovery works on in the log; every method may raise ``NotSentError``."""

    async def beat(self, cluster_id: str, owner: str) -> None:
        """Record that the owner is alive."""

    async def claim_open(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[OpenAlteration]:
        """Claim entities of a cluster without a definite outcome that no living owner works on.

        Quarantined ones, and open ones past their deadline with a dead owner. What another owner
        has claimed a short while ago is left out; what this one has claimed before is not, so one
        owner recovers one batch at a time.
        """

    async def give_back(self, cluster_id: str, owner: str) -> None:
        """Let others claim what the owner has claimed and not recovered."""

    async def open_intents(self, cluster_id: str) -> OpenIntents:
        """Return what has no definite outcome yet, of all processes that serve the cluster."""

    async def record_recovery(self, recovered: Sequence[Recovered]) -> Mapping[RecoveryKey, str]:
        """Add what was found to the log; free the locks and keep the states where it is final.

        All of it is one transaction, and repeating it is harmless.

        Returns:
            What was left as it is, and why: the log has another conclusion, or no such entity.
        """


class AuditedState(NamedTuple):
    """The last audited values of an entity, empty for none; the version changes with each state."""

    values: Values
    version: int


@dataclass(frozen=True, slots=True)
class Drift:
    """A change of one entity that this service did not make, or not knowingly.

    Attributes:
        before: The last audited values; empty where there were none.
        after: The values that were seen in the cluster; empty where nothing is stored any more.
        first_seen: When they were seen first (UTC).
        version: Of the audited state that ``before`` was taken from; 0 where there was none.
        linked_alteration_id: The alteration of ours that was applied late, or null.
    """

    entity: ClientQuotaEntity
    before: Values
    after: Values
    first_seen: datetime
    version: int
    linked_alteration_id: str | None = None


class DriftJournal(Protocol):
    """What the watch works on in the log; every method may raise ``NotSentError``."""

    async def try_lead(self, cluster_id: str) -> bool:
        """Tell whether this process is the one that watches the cluster; ask before each round.

        Nothing rests on it but economy: two that watch at once record each drift once.
        """

    async def let_others_lead(self, cluster_id: str) -> None:
        """Be no longer the one that watches, until asked again."""

    async def baseline(self, cluster_id: str) -> Mapping[ClientQuotaEntity, AuditedState] | None:
        """Return the last audited states, to be read before the cluster is.

        Null where the cluster was never watched: then what it holds is to be stored as the
        baseline, whoever has set it. From then on an entity that is missing here had no values.
        """

    async def keep_baseline(self, cluster_id: str, quotas: Quotas) -> None:
        """Store what the cluster holds in the first round, where no state was audited yet.

        Nothing of it is drift, so the log gets no rows.
        """

    async def record_drift(
        self, cluster_id: str, changes: Sequence[Drift]
    ) -> Sequence[ClientQuotaEntity]:
        """Record the changes as rows of action ``drift``, and keep the states that were seen.

        Left out is an entity that an alteration has under way, and one whose audited state is not
        of that version any more: what was seen may be our own change. Such are for the next round.

        Returns:
            The entities whose drift was recorded.
        """

    async def recent_doubtful(
        self, cluster_id: str, entities: Iterable[ClientQuotaEntity]
    ) -> Mapping[ClientQuotaEntity, Mapping[str, ClientQuotaAlteration]]:
        """Return alterations of these entities that a late apply could come from.

        By entity, and by the alteration's id, the newest first.

        Concluded in the last 30 minutes as refused, not applied, observed otherwise, unknown or
        superseded; and what recovery found applied, which a broker may have sent twice.
        """
