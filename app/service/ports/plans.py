"""Plans as they are stored, and what the alteration that applies one carries with it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from app.domain.alterations import ReadSet
from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Holders, Holdings, Plan


@dataclass(frozen=True, slots=True)
class PlanApplication:
    """The plan behind an alteration, and who will hold the keys that it changes.

    The owner's claim is written with the locks, in the transaction of the intent, and is made true
    in the transaction that frees a lock with the outcome ``applied``, whoever writes that.

    Attributes:
        owner: Who will hold what is set; what is removed is held by nobody then.
        force: Whether keys may be taken from other owners.
        holders: Who held the keys when the plan was made, by entity, in the order of its changes.
        beside: What must hold of entities that the alteration does not touch.
        taken_over: The owners from which keys are taken by force, by ordinal and key.
    """

    plan_id: str
    owner: str
    force: bool
    holders: Mapping[ClientQuotaEntity, Holders]
    beside: ReadSet = field(default_factory=dict)
    taken_over: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, Any]:
        """What the audit log has of it."""
        return {
            "plan_id": self.plan_id,
            "owner": self.owner,
            "force": self.force,
            "taken_over": {
                str(ordinal): dict(owners) for ordinal, owners in self.taken_over.items()
            },
        }


MAX_OWN_PLANS: Final = 1_000
MAX_OWN_PLAN_BYTES: Final = 64 * 1024 * 1024
"""How many plans of one principal are stored that have not expired, and their text in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan(Plan):
    """A plan that can be applied until it expires.

    Attributes:
        plan_id: A UUIDv7.
        owner: In whose name it is applied.
        scope: Filter components as written.
        base: A fingerprint of the values and owners that it rests on.
    """

    plan_id: str
    cluster_id: str
    author: str
    owner: str
    prune: bool
    adopt: bool
    scope: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    base: str


class PlanStore(Protocol):
    """Keeps plans and owners. Every method raises ``NotSentError`` when Postgres does not do it."""

    async def holdings(
        self, cluster_id: str, owner: str, entities: Iterable[ClientQuotaEntity]
    ) -> Holdings:
        """Return who holds which keys: of these entities, and of all entities the owner's own."""

    async def owned(self, cluster_id: str, owners: Collection[str] | None) -> Holdings:
        """Return who holds which keys of the entities of which one of the owners holds a key.

        Null is any owner.
        """

    async def keep(self, plan: StoredPlan) -> bool:
        """Store a plan; false where the author has as many as one may have.

        That is ``MAX_OWN_PLANS``, or ``MAX_OWN_PLAN_BYTES`` before this one.
        """

    async def plan(self, cluster_id: str, plan_id: str) -> StoredPlan | None:
        """Return a plan for a cluster; null where there is none any more."""
