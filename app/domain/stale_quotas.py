"""Stored values that do nothing, by the levels and by who was seen: causes and sentences."""

from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.quantities import value_in_words

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


class Cause(Enum):
    """How it is found that a value does nothing."""

    GOES_BEFORE = auto()
    SAME_EFFECT = auto()
    NOT_IN_INVENTORY = auto()
    NO_FALLBACK = auto()
    NOT_SEEN = auto()
    OTHERS_FIRST = auto()


KINDS: Final = {
    Cause.GOES_BEFORE: StaleKind.SHADOWED,
    Cause.SAME_EFFECT: StaleKind.REDUNDANT,
    Cause.NOT_IN_INVENTORY: StaleKind.ORPHAN,
    Cause.NO_FALLBACK: StaleKind.DEFAULT_UNUSED,
    Cause.NOT_SEEN: StaleKind.IDLE,
    Cause.OTHERS_FIRST: StaleKind.SHADOWED,
}


class Stored(NamedTuple):
    """A value of a key of an entity."""

    entity: ClientQuotaEntity
    key: str
    value: float


def stale_reason(cause: Cause, days: int, about: Stored) -> str:
    """Return a sentence that says why a value does nothing.

    Args:
        cause: How that is found.
        days: That were looked at.
        about: The value that goes before it or has the same effect, where that is the cause; else
            the value itself.
    """
    match cause:
        case Cause.GOES_BEFORE:
            return f"{about.entity} goes before it for everybody."
        case Cause.SAME_EFFECT:
            words = value_in_words(about.key, about.value)
            return f"{about.entity} gives {words} too, and is shared by the same."
        case Cause.NOT_IN_INVENTORY:
            return f"The inventory has no user {about.entity.as_dict()[EntityType.USER]!r}."
        case Cause.NO_FALLBACK:
            return f"In {days} days nobody fell back on it; who comes new would."
        case Cause.NOT_SEEN:
            return f"Nobody of these names was seen in {days} days."
        case Cause.OTHERS_FIRST:
            return f"Others went before it for all who were seen in {days} days."
