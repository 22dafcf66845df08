"""The rules of right sizes, one bucket after the other, which the columns are held to.

Naive on purpose: plain Python over one value for each bucket.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKey, Scope
from app.domain.right_sizes import (
    CONFIDENT_FACTOR,
    HIDING_LEVEL,
    Action,
    Figures,
    SizingRules,
    Why,
    action_of,
    allowed_value,
    limits_anything,
    own_entity_at,
    own_value_in_words,
    sentence,
    sizing_body,
)


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


def _why_raise(use: BucketUse, rules: SizingRules) -> Why | None:
    tolerated = rules.tolerate
    if tolerated is None:
        tolerated = math.floor(use.minutes * (100 - rules.percentile) / 100)
    if use.throttled_minutes > tolerated:
        return Why.THROTTLED
    return Why.TOO_LOW if use.limit < _needs(use, rules) else None


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


def _saving(use: BucketUse, value: float | None, brokers: int) -> float:
    if value is None:
        return 0.0
    per_broker = QUOTA_KEY_RULES[QuotaKey(use.key)].scope is Scope.PER_BROKER
    return (use.limit - value) * (brokers if per_broker else 1)
