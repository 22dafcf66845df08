"""What a stored value should be, from what the buckets that spend from it used."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from app.domain.alterations import quota_value_json
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.quantities import value_in_words
from app.domain.quota_keys import QUOTA_KEY_RULES, TWO_TO_63, QuotaKey, Scope
from app.domain.resolution_levels import PRECEDENCE, Slot

DIGITS: Final = 3
"""So many digits of a value count; it is rounded up to them."""

_CONFIDENT_FACTOR: Final = 2


class Action(StrEnum):
    """What to do with a value."""

    RAISE = "raise"
    LOWER = "lower"
    KEEP = "keep"
    INSUFFICIENT = "insufficient"


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
        row = PRECEDENCE[self.level - 1]
        names = {EntityType.USER: (row.user, self.user), EntityType.CLIENT_ID: self._client()}
        named = {
            kind.value: name for kind, (slot, name) in names.items() if slot is not Slot.ABSENT
        }
        return ClientQuotaEntity.of(named) if all(named.values()) else None

    def _client(self) -> tuple[Slot, str]:
        return PRECEDENCE[self.level - 1].client_id, self.client_id

    @property
    def is_default(self) -> bool:
        """Whether others may spend from the same value, each from a bucket of its own."""
        return self.entity != self.own_entity

    @property
    def skew(self) -> float | None:
        """The busiest broker's rate beside the median broker's; null where that has none."""
        return self.rate / self.median if self.median > 0 else None


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
        before = self.use.limit if self.entity == self.use.entity else None
        return alteration_body(
            self.entity, self.use.key, self.value, before, f"{self.action}: {self.reason}"
        )


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
    if len(above) * _CONFIDENT_FACTOR > len(group):
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
    if own is None:
        reason = f"{advice.reason} It has an empty name, and so no value of its own."
        return replace(advice, value=None, saving=0.0, reason=reason)
    if use.level == 6 and (use.key, use.user) in hidden:
        reason = (
            f"{advice.reason} A value of {own} would go before the defaults of its client-ids, too."
        )
        return replace(advice, value=None, saving=0.0, reason=reason)
    return replace(advice, entity=own, reason=f"{advice.reason} Others stay with {use.entity}.")


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
        reason = "A bucket of it was throttled."
        advice = replace(advice, action=Action.KEEP, value=None, saving=0.0, reason=reason)
    promised = sum(each.use.brokers for each in judged)
    return replace(
        advice, use=busiest, buckets=buckets, saving=_saving(together, advice.value, promised)
    )


def judge(use: BucketUse, rules: SizingRules) -> RightSize:
    """Judge the limit of one bucket by its own use."""
    target = target_of(use, rules)
    action, reason = _action(use, target, rules)
    value = _next_step(use, target, action, rules)
    if value is not None and not _moves(use.limit, action, value):
        action, value, reason = Action.KEEP, None, "No other value is allowed."
    saving = _saving(use, value, use.brokers)
    return RightSize(use, use.entity, 1, action, value, target, saving, reason)


def target_of(use: BucketUse, rules: SizingRules) -> float:
    """Return what the busiest broker needs, in the key's unit."""
    rate = use.rate + (min(use.median, use.cluster_total - use.rate) if rules.skew_aware else 0.0)
    return allowed_value(use.key, max(rate * (1 + rules.margin), rules.floor))


def _action(use: BucketUse, target: float, rules: SizingRules) -> tuple[Action, str]:
    if not 0 < use.limit < TWO_TO_63 or use.limit > QUOTA_KEY_RULES[use.key].maximum:
        return Action.KEEP, "The value limits nothing."
    if use.days < rules.min_days:
        return Action.INSUFFICIENT, f"{use.days} of {rules.min_days} days have data."
    if use.coverage < rules.min_coverage:
        return Action.INSUFFICIENT, f"Only {use.coverage:.0%} of the minutes have data."
    if reason := _why_raise(use, rules):
        return Action.RAISE, reason
    if use.limit <= _CONFIDENT_FACTOR * target * (1 + 1 / use.days):
        return Action.KEEP, "The value fits what was used."
    if use.throttled_minutes:
        return Action.KEEP, "It was throttled, so it may want more than was seen."
    words = value_in_words(use.key, target)
    return Action.LOWER, f"{rules.percentile} % of the minutes need up to {words}, with the margin."


def _why_raise(use: BucketUse, rules: SizingRules) -> str | None:
    tolerated = rules.tolerate
    if tolerated is None:
        tolerated = math.floor(use.minutes * (100 - rules.percentile) / 100)
    if use.throttled_minutes > tolerated:
        return (
            f"{use.throttled_minutes:,} of {use.minutes:,} minutes were throttled: raise by a "
            "step, and measure again."
        )
    needs = _needs(use, rules)
    if use.limit < needs:
        words = value_in_words(use.key, needs)
        return f"95 % of the minutes need up to {words}, with the margin."
    return None


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
