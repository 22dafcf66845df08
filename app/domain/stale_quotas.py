"""Stored values that do nothing, by the levels and by who was seen: causes, sentences, bodies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum, auto
from typing import Any, Final, NamedTuple

from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.quantities import value_in_words
from app.domain.right_sizes import alteration_body

ANONYMOUS: Final = "ANONYMOUS"
HIDES_CLIENTS: Final = (4, 5, 7, 8)
"""Levels whose client-ids a user's bucket hides: its metric does not name them."""

MOST_WINNERS: Final = 10
"""So many are named."""


class StaleKind(StrEnum):
    """Why a value does nothing."""

    SHADOWED = "shadowed"
    REDUNDANT = "redundant"
    ORPHAN = "orphan"
    IDLE = "idle"
    DEFAULT_UNUSED = "default_unused"


@dataclass(frozen=True, slots=True)
class StaleValue:
    """A stored value that does nothing.

    Attributes:
        winners: The entities that go before it.
        last_seen: When a client of these names was seen; null: it was not.
    """

    kind: StaleKind
    entity: ClientQuotaEntity
    key: str
    value: float
    level: int
    reason: str
    winners: Sequence[ClientQuotaEntity]
    last_seen: datetime | None

    def body(self) -> Mapping[str, Any]:
        """Return what ``POST /quotas/alterations`` takes to remove it."""
        reason = f"{self.kind}: {self.reason}"
        return alteration_body(self.entity, self.key, None, self.value, reason)


class Cause(Enum):
    """How it is found that a value does nothing."""

    GOES_BEFORE = auto()
    SAME_EFFECT = auto()
    NOT_IN_INVENTORY = auto()
    NO_FALLBACK = auto()
    NOT_SEEN = auto()
    OTHERS_FIRST = auto()


class Stored(NamedTuple):
    """A value of a key of an entity, and the entity's level."""

    entity: ClientQuotaEntity
    key: str
    value: float
    level: int


def stale_value(
    cause: Cause,
    stored: Stored,
    days: int,
    others: Sequence[ClientQuotaEntity] = (),
    last: datetime | None = None,
) -> StaleValue:
    """Return a value that does nothing, with its sentence.

    Args:
        cause: How that is found.
        stored: The value.
        days: That were looked at.
        others: The entities that go before it, or the one with the same effect.
        last: When a client of its names was seen last, where that is of interest.
    """
    winners = list(others)
    match cause:
        case Cause.GOES_BEFORE:
            kind, reason = StaleKind.SHADOWED, f"{others[0]} goes before it for everybody."
        case Cause.SAME_EFFECT:
            words = value_in_words(stored.key, stored.value)
            reason = f"{others[0]} gives {words} too, and is shared by the same."
            kind, winners = StaleKind.REDUNDANT, []
        case Cause.NOT_IN_INVENTORY:
            user = stored.entity.as_dict()[EntityType.USER]
            kind, reason = StaleKind.ORPHAN, f"The inventory has no user {user!r}."
        case Cause.NO_FALLBACK:
            kind = StaleKind.DEFAULT_UNUSED
            reason = f"In {days} days nobody fell back on it; who comes new would."
        case Cause.NOT_SEEN:
            kind, reason = StaleKind.IDLE, f"Nobody of these names was seen in {days} days."
        case Cause.OTHERS_FIRST:
            kind = StaleKind.SHADOWED
            reason = f"Others went before it for all who were seen in {days} days."
    entity, key, value, level = stored
    return StaleValue(kind, entity, key, value, level, reason, winners, last)
