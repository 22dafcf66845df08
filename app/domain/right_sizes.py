"""What a stored value should be, from what the buckets that spend from it used."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Any, Final, NamedTuple

from app.domain.alterations import quota_value_json
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.quantities import value_in_words
from app.domain.quota_keys import QUOTA_KEY_RULES, TWO_TO_63, QuotaKey, Scope
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


@dataclass(frozen=True, slots=True)
class BucketUse:
    """What a bucket used on its busiest broker beside the limit that it has now.

    Attributes:
        entity: Whose value limits it.
        p95: The rate that 95 % of the minutes stay at or below; in the key's unit.
        rate: The same of the percentile of the rules.
        peak: The highest minute.
        median: The percentile on the median broker.
        cluster_total: The sum of the percentile over all brokers.
        brokers: That have traffic of it.
        coverage: 0 to 1, of the minutes that the broker reported in the hours of the bucket.
        minutes: Minutes with data, over all brokers.
        throttled_minutes: Of these.
    """

    bucket_id: int
    key: str
    user: str
    client_id: str
    level: int
    entity: ClientQuotaEntity
    limit: float
    broker_id: int
    p95: float
    rate: float
    peak: float
    median: float
    cluster_total: float
    brokers: int
    days: int
    coverage: float
    minutes: int
    throttled_minutes: int

    @property
    def own_entity(self) -> ClientQuotaEntity | None:
        """The entity of this bucket alone; null where a name is empty that it would need."""
        own = own_entity_at(self.level, self.user, self.client_id)
        return own if all(own.as_dict().values()) else None

    @property
    def is_default(self) -> bool:
        """Whether others may spend from the same value, each from a bucket of its own."""
        return self.entity != self.own_entity

    @property
    def skew(self) -> float | None:
        """The busiest broker's rate beside the median broker's; null where that has none."""
        return self.rate / self.median if self.median > 0 else None


def own_entity_at(level: int, user: str, client_id: str) -> ClientQuotaEntity:
    """Return the entity of a bucket of a level, 1 to 8, alone: that has names for defaults."""
    row = PRECEDENCE[level - 1]
    slots = ((EntityType.USER, row.user, user), (EntityType.CLIENT_ID, row.client_id, client_id))
    return ClientQuotaEntity.of(
        {kind.value: name for kind, slot, name in slots if slot is not Slot.ABSENT}
    )


@dataclass(frozen=True, slots=True)
class RightSize:
    """Advice about one value.

    Attributes:
        use: Of the busiest bucket that is judged with it.
        entity: Whose value to set; that of ``use`` or, of a bucket that needs more than a default,
            its own.
        buckets: That spend from values of the entity that limits now.
        value: To set now; null for nothing.
        target: What the busiest broker needs.
        saving: By how much the promises of all brokers shrink, in the key's unit.
        reason: A sentence.
    """

    use: BucketUse
    entity: ClientQuotaEntity
    buckets: int
    action: Action
    value: float | None
    target: float
    saving: float
    reason: str

    @property
    def factor(self) -> float | None:
        """How many times the value is above or below the limit; null without a change."""
        if self.value is None:
            return None
        return max(self.value / self.use.limit, self.use.limit / self.value)

    @property
    def censored(self) -> bool:
        """Whether it was throttled, so that it may want more than was seen."""
        return self.use.throttled_minutes > 0

    def body(self) -> Mapping[str, Any] | None:
        """Return what ``POST /quotas/alterations`` takes; null without a change."""
        if self.value is None:
            return None
        use = self.use
        before = use.limit if self.entity == use.entity else None
        return sizing_body(self.entity, use.key, self.value, before, (self.action, self.reason))


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
    return {"reason": f"Advice of the pipeline: {reason}"[:1000], "alterations": [alteration]}


def right_sizes(uses: Iterable[BucketUse], rules: SizingRules) -> Iterator[RightSize]:
    """Yield advice about each value that limits a bucket, by key, entity and bucket."""
    of_value: dict[tuple[str, ClientQuotaEntity], list[BucketUse]] = defaultdict(list)
    in_order = sorted(uses, key=lambda use: (use.key, use.entity.sort_key(), use.bucket_id))
    hidden = _hidden_by_user(in_order)
    for use in in_order:
        of_value[use.key, use.entity].append(use)
    for group in of_value.values():
        yield from _of_value(group, hidden, rules)


def _hidden_by_user(uses: Iterable[BucketUse]) -> set[tuple[str, str]]:
    """Return keys and users of whom a value of the user's own would limit other buckets, too."""
    return {(use.key, use.user) for use in uses if use.level in {4, 5}}


def _of_value(
    group: Sequence[BucketUse], hidden: set[tuple[str, str]], rules: SizingRules
) -> Iterator[RightSize]:
    if not group[0].is_default:
        for use in group:
            yield replace(judge(use, rules), buckets=len(group))
        return
    judged = {use.bucket_id: judge(use, rules) for use in group}
    above = [each for each in judged.values() if each.action is Action.RAISE]
    if len(above) * CONFIDENT_FACTOR > len(group):
        yield _of_default(list(judged.values()), len(group), rules)
        return
    for each in above:
        yield _with_own(replace(each, buckets=len(group)), hidden)
    others = [each for each in judged.values() if each.action is not Action.RAISE]
    if others:
        yield _of_default(others, len(group), rules)


def _with_own(advice: RightSize, hidden: set[tuple[str, str]]) -> RightSize:
    """Give a bucket that needs more than a default a value of its own, where it can have one."""
    use, own = advice.use, advice.use.own_entity
    is_hiding = use.level == HIDING_LEVEL and (use.key, use.user) in hidden
    reason = f"{advice.reason} {own_value_in_words(use.entity, own, is_hiding=is_hiding)}"
    if own is None or is_hiding:
        return replace(advice, value=None, saving=0.0, reason=reason)
    return replace(advice, entity=own, reason=reason)


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


def _of_default(judged: Sequence[RightSize], buckets: int, rules: SizingRules) -> RightSize:
    """Judge a default by all buckets together: it has to hold for the busiest of them."""
    busiest = max(judged, key=lambda each: (each.target, -each.use.bucket_id)).use
    sufficient = [each.use for each in judged if each.action is not Action.INSUFFICIENT]
    if not sufficient:
        return replace(judge(busiest, rules), buckets=buckets)
    together = replace(
        busiest,
        days=max(use.days for use in sufficient),
        coverage=max(use.coverage for use in sufficient),
    )
    advice = judge(together, rules)
    if advice.action is Action.LOWER and any(each.censored for each in judged):
        reason = _reason(together, advice.target, Why.OTHERS_THROTTLED, rules)
        advice = replace(advice, action=Action.KEEP, value=None, saving=0.0, reason=reason)
    promised = sum(each.use.brokers for each in judged)
    return replace(
        advice, use=busiest, buckets=buckets, saving=_saving(together, advice.value, promised)
    )


def judge(use: BucketUse, rules: SizingRules) -> RightSize:
    """Judge the limit of one bucket by its own use."""
    target = target_of(use, rules)
    why = _why(use, target, rules)
    value = _next_step(use, target, action_of(why), rules)
    if value is not None and not _moves(use.limit, action_of(why), value):
        why, value = Why.NO_OTHER_VALUE, None
    saving = _saving(use, value, use.brokers)
    reason = _reason(use, target, why, rules)
    return RightSize(use, use.entity, 1, action_of(why), value, target, saving, reason)


def _reason(use: BucketUse, target: float, why: Why, rules: SizingRules) -> str:
    figures = Figures(
        use.key, use.days, use.coverage, use.minutes, use.throttled_minutes, use.p95, target
    )
    return sentence(why, figures, rules)


def target_of(use: BucketUse, rules: SizingRules) -> float:
    """Return what the busiest broker needs, in the key's unit."""
    rate = use.rate + (min(use.median, use.cluster_total - use.rate) if rules.skew_aware else 0.0)
    return allowed_value(use.key, max(rate * (1 + rules.margin), rules.floor))


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


def _why(use: BucketUse, target: float, rules: SizingRules) -> Why:
    if not limits_anything(use.key, use.limit):
        return Why.NO_LIMIT
    if use.days < rules.min_days:
        return Why.FEW_DAYS
    if use.coverage < rules.min_coverage:
        return Why.FEW_MINUTES
    if why := _why_raise(use, rules):
        return why
    if use.limit <= CONFIDENT_FACTOR * target * (1 + 1 / use.days):
        return Why.FITS
    return Why.MAY_WANT_MORE if use.throttled_minutes else Why.TOO_HIGH


def limits_anything(key: str, limit: float) -> bool:
    """Tell whether a rate can be above a limit."""
    return 0 < limit < TWO_TO_63 and limit <= QUOTA_KEY_RULES[key].maximum


def _why_raise(use: BucketUse, rules: SizingRules) -> Why | None:
    tolerated = rules.tolerate
    if tolerated is None:
        tolerated = math.floor(use.minutes * (100 - rules.percentile) / 100)
    if use.throttled_minutes > tolerated:
        return Why.THROTTLED
    return Why.TOO_LOW if use.limit < _needs(use, rules) else None


class Figures(NamedTuple):
    """What a sentence about a value names; as ``BucketUse`` has it."""

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


def _needs(use: BucketUse, rules: SizingRules) -> float:
    return use.p95 * (1 + rules.margin)


def _next_step(use: BucketUse, target: float, action: Action, rules: SizingRules) -> float | None:
    match action:
        case Action.RAISE:
            # Who was throttled wanted more than was seen; nobody knows how much.
            wanted = math.inf if use.throttled_minutes else max(target, _needs(use, rules))
            return allowed_value(use.key, min(wanted, use.limit * rules.step_max))
        case Action.LOWER:
            return allowed_value(use.key, max(target, use.limit / rules.step_max))
    return None


def _moves(limit: float, action: Action, value: float) -> bool:
    """Tell whether a value, which was rounded and bounded, is still where the action leads."""
    return value > limit if action is Action.RAISE else value < limit


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


def _saving(use: BucketUse, value: float | None, brokers: int) -> float:
    if value is None:
        return 0.0
    per_broker = QUOTA_KEY_RULES[QuotaKey(use.key)].scope is Scope.PER_BROKER
    return (use.limit - value) * (brokers if per_broker else 1)
