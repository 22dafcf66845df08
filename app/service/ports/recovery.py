"""What recovery and the watch for drift need of the audit log."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from app.domain.alterations import AlterationResult, ClientQuotaAlteration, Quotas, Values
from app.domain.entities import ClientQuotaEntity
from app.service.ports.audit_log import AuditEntity
from app.service.ports.metrics import OpenIntents

RecoveryKey = tuple[str, int]
"""An entity of an alteration: the alteration's id, and the entity's ordinal in it."""


@dataclass(frozen=True, slots=True)
class OpenAlteration:
    """One entity of an alteration without a definite outcome, claimed by one recovery.

    Attributes:
        audited: As in the intent: ordinal, operations, ``before`` as far as it was read.
        broker_id: The broker that it was sent through, or null.
        age_s: Seconds since the bytes can have been handed over at the latest, by the database's
            clock; negative where that time has not come.
        last_audited: What the log had last of the entity; null where nothing. The values of an
            intent are read before the barrier, and may be older.
    """

    alteration_id: str
    audited: AuditEntity
    broker_id: int | None
    age_s: float
    last_audited: Values | None = None

    @property
    def key(self) -> RecoveryKey:
        """Which entity of which alteration."""
        return self.alteration_id, self.audited.ordinal


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

    async def let_others_lead(self) -> None:
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
