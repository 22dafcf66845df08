"""What recovery needs of the audit log: what is open, and a place for what was found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.domain.alterations import AlterationResult
from app.service.audit_records import AuditEntity
from app.service.metrics_port import OpenIntents

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

    async def beat(self, cluster_id: str, owner: str) -> None:
        """Say that the owner lives."""
        ...

    async def claim_open(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[OpenAlteration]:
        """Claim entities of a cluster without a known outcome, whose owner is dead or gave them up.

        Quarantined ones, and open ones past their deadline with a dead owner. What another owner
        has claimed a short while ago is left out; what this one has claimed before is not, so one
        owner recovers one batch at a time.
        """
        ...

    async def give_back(self, cluster_id: str, owner: str) -> None:
        """Let others claim what the owner has claimed and not recovered."""
        ...

    async def open_intents(self, cluster_id: str) -> OpenIntents:
        """Return what has no definite outcome yet, of all processes that serve the cluster."""
        ...

    async def record_recovery(self, recovered: Sequence[Recovered]) -> Mapping[Place, str]:
        """Add what was found to the log; free the slots and keep the states where it is final.

        All of it is one transaction, and repeating it is harmless.

        Returns:
            What was left as it is, and why: the log has another conclusion, or no such entity.
        """
        ...
