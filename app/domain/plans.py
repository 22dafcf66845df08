"""Plans: what a document of desired quotas would change, worked out before anything is sent.

Without ``prune`` nothing is removed: keys that the document does not name stay as they are. With it
the keys inside the scope are removed that the owner applied before, that still have the value it
applied, and that the document does not name any more.

An owner holds the keys that it applied. A key has one owner; alterations have none, so a key that
was never applied from a plan is nobody's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from app.domain.alterations import ClientQuotaAlteration, Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import Violation
from app.domain.filters import ClientQuotaFilterComponent

DesiredValue = Decimal | float
"""A value as written; a float only for NaN and the infinities, which JSON writes as text."""


@dataclass(frozen=True, slots=True)
class DesiredQuota:
    """One entity of the document."""

    entity: ClientQuotaEntity
    values: Mapping[str, DesiredValue]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is desired, and what may be touched for it.

    Attributes:
        quotas: The document, in its order.
        owner: In whose name it is applied.
        prune: Remove what the owner applied before and the document does not name any more.
        adopt: Let the owner hold the keys of the document that have their values already.
        scope: Any of these must match an entity; none is every entity.
    """

    quotas: tuple[DesiredQuota, ...]
    owner: str
    prune: bool = False
    adopt: bool = False
    scope: tuple[ClientQuotaFilterComponent, ...] = ()

    def covers(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the entity may be touched."""
        return not self.scope or any(component.matches(entity) for component in self.scope)


@dataclass(frozen=True, slots=True)
class Holding:
    """Who applied a key, and the value that was applied."""

    owner: str
    value: float


Holdings = Mapping[ClientQuotaEntity, Mapping[str, Holding]]
"""The keys that are held, by entity."""

Holders = Mapping[str, str | None]
"""The owner of each key; null where nobody holds it."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What would be done to one entity; ``before`` and ``after`` are the whole entity's values."""

    alteration: ClientQuotaAlteration
    before: Values
    after: Values
    holders: Holders


@dataclass(frozen=True, slots=True)
class Conflict:
    """A key that another owner holds and that the plan would change.

    Attributes:
        owner: Who holds it.
        held: The value that this owner applied.
        current: The value that is stored.
        proposed: The value that the plan would set.
    """

    entity: ClientQuotaEntity
    key: str
    owner: str
    held: float
    current: float
    proposed: float


class WhyKept(StrEnum):
    """Why a key that the document does not name any more is not removed."""

    CHANGED_SINCE = "changed-since"


@dataclass(frozen=True, slots=True)
class Kept:
    """A key of the owner's that is left as it is although the document does not name it."""

    entity: ClientQuotaEntity
    key: str
    value: float
    reason: WhyKept


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done, in the order of the entities.

    Attributes:
        changes: One for each entity that is touched.
        conflicts: What only force would do.
        kept: What pruning leaves.
        rests_on: The values that the plan was made from, by entity and key; null: not set.
        violations: Broken rules of what would change; with any of them there is no plan.
    """

    changes: tuple[PlannedChange, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    kept: tuple[Kept, ...] = ()
    rests_on: Mapping[ClientQuotaEntity, Mapping[str, float | None]] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
