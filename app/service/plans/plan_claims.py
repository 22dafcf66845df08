"""What the alteration that applies a plan carries with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Holders

RestsOn = Mapping[ClientQuotaEntity, Mapping[str, float | None]]
"""Values that must hold, by entity and key; null: not set."""


@dataclass(frozen=True, slots=True)
class OwnershipClaim:
    """Who will hold the keys of an alteration once it is known to be applied.

    The claim is written with the slots, in the transaction of the intent, and is made true in the
    transaction that frees a slot with the outcome ``applied``, whoever writes that.

    Attributes:
        owner: Who will hold what is set; what is removed is held by nobody then.
        force: Whether keys may be taken from other owners.
        holders: Who held the keys when the plan was made, by entity.
    """

    owner: str
    force: bool
    holders: Mapping[ClientQuotaEntity, Holders]


@dataclass(frozen=True, slots=True)
class PlanApplication:
    """The plan behind an alteration.

    Attributes:
        plan_id: Which plan.
        claim: What its owner gets.
        beside: What must hold of entities that the alteration does not touch.
        taken_over: From whom keys are taken by force: by ordinal and key.
    """

    plan_id: str
    claim: OwnershipClaim
    beside: RestsOn = field(default_factory=dict)
    taken_over: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, Any]:
        """What the audit log keeps of it."""
        return {
            "plan_id": self.plan_id,
            "owner": self.claim.owner,
            "force": self.claim.force,
            "taken_over": {str(ordinal): dict(one) for ordinal, one in self.taken_over.items()},
        }
