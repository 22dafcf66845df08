"""Advice about stored values: its rules, sentences and bodies, and the values that there may be."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Final, NamedTuple

from app.domain.alterations import quota_value_json
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.quantities import value_in_words
from app.domain.quota_keys import QUOTA_KEY_RULES, TWO_TO_63
from app.domain.resolution_levels import PRECEDENCE, Slot

DIGITS: Final = 3
"""So many digits of a value count; it is rounded up to them."""

CONFIDENT_FACTOR: Final = 2
"""A value is lowered where it is above so many times the target, or a little more with few days;
and a default is raised itself where more than one in so many of its buckets need it."""


class Action(StrEnum):
    """What to do with a value."""

    RAISE = "raise"
    LOWER = "lower"
    KEEP = "keep"
    INSUFFICIENT = "insufficient"


class Why(Enum):
    """Why a value is raised, lowered or left."""

    NO_LIMIT = auto()
    FEW_DAYS = auto()
    FEW_MINUTES = auto()
    THROTTLED = auto()
    TOO_LOW = auto()
    FITS = auto()
    MAY_WANT_MORE = auto()
    TOO_HIGH = auto()
    NO_OTHER_VALUE = auto()
    OTHERS_THROTTLED = auto()


@dataclass(frozen=True, slots=True)
class SizingRules:
    """How advice is given.

    Attributes:
        percentile: Of the minutes that a value is to hold for, 0 to 100.
        margin: What is added to their rate, as a part of it.
        floor: No value is lower, in the key's unit.
        step_max: How many times a value is raised or lowered at most, at once.
        tolerate: Throttled minutes that are no reason to raise; null: as many as the percentile
            leaves out.
        skew_aware: Whether the busiest broker is to hold the median broker's share, too.
        min_days: With data.
        min_coverage: Of the minutes in which the broker reported, 0 to 1.
    """

    percentile: int = 99
    margin: float = 0.15
    floor: float = 0.0
    step_max: float = 2.0
    tolerate: int | None = None
    skew_aware: bool = False
    min_days: int = 7
    min_coverage: float = 0.9


def own_entity_at(level: int, user: str, client_id: str) -> ClientQuotaEntity:
    """Return the entity of a bucket of a level, 1 to 8, alone: that has names for defaults."""
    row = PRECEDENCE[level - 1]
    slots = ((EntityType.USER, row.user, user), (EntityType.CLIENT_ID, row.client_id, client_id))
    return ClientQuotaEntity.of(
        {kind.value: name for kind, slot, name in slots if slot is not Slot.ABSENT}
    )


def sizing_body(
    entity: ClientQuotaEntity,
    key: str,
    value: float,
    before: float | None,
    because: tuple[Action, str],
) -> Mapping[str, Any]:
    """Return what ``POST /quotas/alterations`` takes to follow advice.

    Args:
        entity: Whose value.
        key: Of which key.
        value: To set.
        before: As for ``alteration_body``.
        because: What to do, and the reason.
    """
    action, reason = because
    return alteration_body(entity, key, value, before, f"{action}: {reason}")


def alteration_body(
    entity: ClientQuotaEntity, key: str, value: float | None, before: float | None, reason: str
) -> Mapping[str, Any]:
    """Return what ``POST /quotas/alterations`` takes to give a key a value.

    Args:
        entity: Whose.
        key: Which.
        value: Null removes it.
        before: What must hold now; null: nothing is set.
        reason: For the log.
    """
    op: dict[str, Any] = {"key": key, "remove": True}
    if value is not None:
        op = {"key": key, "value": quota_value_json(value)}
    expected = None if before is None else quota_value_json(before)
    alteration = {"entity": entity.as_dict(), "ops": [op], "expected": {key: expected}}
    return {"reason": log_reason(reason), "alterations": [alteration]}


def log_reason(reason: str) -> str:
    """Return the reason of a body, as long as the log takes one."""
    return f"Advice of the pipeline: {reason}"[:1000]


HIDING_LEVEL: Final = 6
"""Of the default user: a value of a user's own would go before the defaults of his client-ids."""


def own_value_in_words(
    entity: ClientQuotaEntity, own: ClientQuotaEntity | None, *, is_hiding: bool
) -> str:
    """Return what is to be said of a bucket that needs more than a default.

    Args:
        entity: The default.
        own: That of the bucket alone; null where it can have none.
        is_hiding: Whether it would go before other defaults, too.
    """
    if own is None:
        return "It has an empty name, and so no value of its own."
    if is_hiding:
        return f"A value of {own} would go before the defaults of its client-ids, too."
    return f"Others stay with {entity}."


_ACTIONS: Final = {
    Why.FEW_DAYS: Action.INSUFFICIENT,
    Why.FEW_MINUTES: Action.INSUFFICIENT,
    Why.THROTTLED: Action.RAISE,
    Why.TOO_LOW: Action.RAISE,
    Why.TOO_HIGH: Action.LOWER,
}


def action_of(why: Why) -> Action:
    """Return what follows from a reason."""
    return _ACTIONS.get(why, Action.KEEP)


def limits_anything(key: str, limit: float) -> bool:
    """Tell whether a rate can be above a limit."""
    return 0 < limit < TWO_TO_63 and limit <= QUOTA_KEY_RULES[key].maximum


class Figures(NamedTuple):
    """What a sentence about a value names; rates are in the key's unit."""

    key: str
    days: int
    coverage: float
    minutes: int
    throttled_minutes: int
    p95: float
    target: float


def sentence(why: Why, figures: Figures, rules: SizingRules) -> str:
    """Return a reason for people."""
    key, days, coverage, minutes, throttled, p95, target = figures
    match why:
        case Why.FEW_DAYS:
            reason = f"{days} of {rules.min_days} days have data."
        case Why.FEW_MINUTES:
            reason = f"Only {coverage:.0%} of the minutes have data."
        case Why.THROTTLED:
            reason = (
                f"{throttled:,} of {minutes:,} minutes were throttled: raise by a step, and "
                "measure again."
            )
        case Why.TOO_LOW:
            words = value_in_words(key, p95 * (1 + rules.margin))
            reason = f"95 % of the minutes need up to {words}, with the margin."
        case Why.TOO_HIGH:
            words = value_in_words(key, target)
            reason = f"{rules.percentile} % of the minutes need up to {words}, with the margin."
        case _:
            reason = _SENTENCES[why]
    return reason


_SENTENCES: Final = {
    Why.NO_LIMIT: "The value limits nothing.",
    Why.FITS: "The value fits what was used.",
    Why.MAY_WANT_MORE: "It was throttled, so it may want more than was seen.",
    Why.NO_OTHER_VALUE: "No other value is allowed.",
    Why.OTHERS_THROTTLED: "A bucket of it was throttled.",
}


def allowed_value(key: str, value: float) -> float:
    """Round a value up to ``DIGITS`` digits, and to what its key may have."""
    rule = QUOTA_KEY_RULES[key]
    rounded = round_up(max(value, rule.minimum))
    whole = float(math.ceil(rounded)) if rule.integral else rounded
    return min(whole, rule.maximum)


def round_up(value: float) -> float:
    """Return the least number of ``DIGITS`` digits that is not below a value."""
    if not 0 < value < math.inf:
        return value
    power = math.floor(math.log10(value)) - DIGITS + 1
    unit = 10.0 ** abs(power)
    # A quotient that is a hair above a whole number is that number.
    scaled = value / unit if power >= 0 else value * unit
    digits = math.ceil(scaled * (1 - 1e-12))
    return float(digits * int(unit)) if power >= 0 else digits / unit
