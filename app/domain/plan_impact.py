"""The impact of a planned change: who has which limit afterwards.

It is stated for the callers that no more specific entity covers: of ``user=alice``, those with any
client-id without a rule of its own. The number of more specific entities is stated beside it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from app.domain.alterations import ClientQuotaAlteration, Quotas, same_value
from app.domain.callbacks.callback import ResolvingCallback
from app.domain.callbacks.kafka_rules import KafkaQuotaCallback
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType
from app.domain.plans import Holding, PlannedChange
from app.domain.quantities import factor_in_words, value_in_words
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import resolve_client
from app.domain.resolution_index import CLIENT_KEYS, QuotaIndex
from app.domain.resolution_levels import (
    IP_PRECEDENCE,
    PRECEDENCE,
    ConfiguredQuota,
    QuotaSource,
    ResolvedQuota,
    Slot,
)

ANY_OTHER: Final = "\x00 any other"
"""A name that no caller has: Kafka's names come from text without U+0000."""

_USER, _CLIENT_ID, _IP = EntityType.USER.value, EntityType.CLIENT_ID.value, EntityType.IP.value

_LEVELS: Final = {(row.user, row.client_id): row for row in PRECEDENCE}


@dataclass(frozen=True, slots=True)
class KeyImpact:
    """What becomes of one key.

    Attributes:
        change: ``set``, ``raised``, ``lowered``, ``removed`` or ``unchanged``.
        factor: The new value divided by the old one; null where there is no such number.
        effective_before: What applies now; null: unlimited, or not a key that brokers know.
        source: Where that comes from; null: nothing applies.
        more_specific: Stored entities with a value of their own, which go before this one.
        changed_since: Who applied another value than the one that is stored, and which; or null.
    """

    change: str
    factor: float | None
    effective_before: float | None
    effective_after: float | None
    source: ConfiguredQuota | None
    more_specific: int
    changed_since: Holding | None = None


class Impacts:
    """Impacts of the changes of one plan."""

    def __init__(self, stored: Quotas, changes: Sequence[PlannedChange]) -> None:
        self._before = QuotaIndex.of(stored)
        after = {change.alteration.entity: change.after for change in changes}
        self._after = self._before.with_values(after)
        self._rules = _Rules({**stored, **after})

    def of(self, change: PlannedChange) -> Mapping[str, KeyImpact]:
        """Return the impact of one change, by key."""
        return {op.key: self._of_key(change, op.key) for op in change.alteration.ops}

    def _of_key(self, change: PlannedChange, key: str) -> KeyImpact:
        entity = change.alteration.entity
        before, after = change.before.get(key), change.after.get(key)
        was, becomes = (_applying(index, entity, key) for index in (self._before, self._after))
        return KeyImpact(
            change=_word(before, after),
            factor=_factor(before, after),
            effective_before=None if was is None else was.value,
            effective_after=None if becomes is None else becomes.value,
            source=becomes,
            more_specific=self._rules.before(entity, key),
            changed_since=change.changed_since.get(key),
        )


def _applying(index: QuotaIndex, entity: ClientQuotaEntity, key: str) -> ConfiguredQuota | None:
    """Return what applies to the callers of an entity that no more specific one covers."""
    names = entity.as_dict()
    if key not in set(QuotaKey):
        return None
    if _IP in names:
        return _applying_to_address(index, names[_IP], key)
    user, client_id = (names.get(kind) or ANY_OTHER for kind in (_USER, _CLIENT_ID))
    resolved = resolve_client(index, user, client_id).quotas.get(QuotaKey(key))
    return None if resolved is None else resolved.source


def _applying_to_address(index: QuotaIndex, name: str | None, key: str) -> ConfiguredQuota | None:
    """Try the entity itself, then the default: no address is looked up for a plan."""
    own, default = (ClientQuotaEntity.of({_IP: ip}) for ip in (name, DEFAULT_NAME))
    for entity in (own, default):
        value = index.values_of(entity).get(key)
        if value is not None:
            return ConfiguredQuota(entity, *IP_PRECEDENCE[1 if entity == default else 0], value)
    return None


class _Rules:
    """How many entities have a key, by the names that could go before another entity's."""

    def __init__(self, quotas: Quotas) -> None:
        self._levels: Counter[tuple[str, QuotaSource]] = Counter()
        self._of_name: Counter[tuple[str, QuotaSource, str, str]] = Counter()
        self._addresses: Counter[str] = Counter()
        for entity, values in quotas.items():
            names = entity.as_dict()
            source = None if _IP in names else _source(names)
            for key in values:
                if names.get(_IP) is not None:
                    self._addresses[key] += 1
                if source is not None:
                    self._levels[key, source] += 1
                    for kind, name in names.items():
                        if name is not DEFAULT_NAME:
                            self._of_name[key, source, kind, name] += 1

    def before(self, entity: ClientQuotaEntity, key: str) -> int:
        """Count the entities that go before this one for some of its callers."""
        names = entity.as_dict()
        if _IP in names:
            return self._addresses[key] if names[_IP] is DEFAULT_NAME else 0
        source = _source(names)
        number = 0
        for row in PRECEDENCE:
            if source is None or row.source is source:
                break
            number += self._going_before(names, row.source, (row.user, row.client_id), key)
        return number

    def _going_before(
        self,
        names: Mapping[str, str | None],
        source: QuotaSource,
        slots: tuple[Slot, Slot],
        key: str,
    ) -> int:
        """Count the rules of a level that may limit callers of these names."""
        for kind, slot in zip((_USER, _CLIENT_ID), slots, strict=True):
            name = names.get(kind)
            if name is not None and slot is Slot.NAMED:
                return self._of_name[key, source, kind, name]
        return self._levels[key, source]


def _source(names: Mapping[str, str | None]) -> QuotaSource | None:
    slots = (_slot(names, _USER), _slot(names, _CLIENT_ID))
    row = _LEVELS.get(slots)
    return None if row is None or not set(names) <= {_USER, _CLIENT_ID} else row.source


def _slot(names: Mapping[str, str | None], kind: str) -> Slot:
    if kind not in names:
        return Slot.ABSENT
    return Slot.DEFAULT if names[kind] is DEFAULT_NAME else Slot.NAMED


def _word(before: float | None, after: float | None) -> str:
    if before is None:
        return "set"
    if after is None:
        return "removed"
    if same_value(before, after):
        return "unchanged"
    return "lowered" if after < before else "raised"


def _factor(before: float | None, after: float | None) -> float | None:
    if not before or after is None or not 0 < before < math.inf:
        return None
    factor = after / before
    return factor if factor < math.inf else None


def summary(entity: ClientQuotaEntity, impacts: Mapping[str, KeyImpact]) -> str:
    """Return one sentence about one change."""
    return "; ".join(_clause(entity, key, impact) for key, impact in impacts.items()) + "."


def _clause(entity: ClientQuotaEntity, key: str, impact: KeyImpact) -> str:
    factor = "" if impact.factor in (None, 1.0) else f" {factor_in_words(impact.factor)}"
    clause = f"{key} {impact.change}{factor}"
    if impact.change == "removed":
        clause += (
            ", then unlimited"
            if impact.source is None
            else f", then {_of(key, impact.source)} applies"
        )
    elif impact.source is not None and impact.source.entity != entity:
        clause += f", but {_of(key, impact.source)} goes before it"
    elif impact.change == "set" and impact.effective_before is not None:
        clause += f", where {value_in_words(key, impact.effective_before)} applies now"
    if (held := impact.changed_since) is not None:
        applied = value_in_words(key, held.value)
        clause += f", changed outside since {held.owner} applied {applied}"
    if impact.more_specific:
        noun = "entity" if impact.more_specific == 1 else "entities"
        clause += f" ({impact.more_specific} more specific {noun} with a value)"
    return clause


def _of(key: str, source: ConfiguredQuota) -> str:
    return f"{value_in_words(key, source.value)} of {source.entity}"


MAX_BUCKETS: Final = 100
"""So many touched buckets are reported: those whose peak is furthest above the new limit."""

BIN_RATIO: Final = 1.01
"""How much wider each bin of a published histogram is than the one below it."""

ZERO_BIN: Final = -(2**31)
"""The bin of a rate of zero: the smallest int."""


class BucketName(NamedTuple):
    """A bucket as the metric tags name it."""

    key: str
    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class PublishedBucket:
    """The last days of a bucket, all brokers pooled.

    Attributes:
        name: Its key and metric tags.
        peak: The highest rate of a minute on a broker, in the key's unit.
        censored: Whether it was throttled or over its limit: then it may have wanted more.
    """

    bucket_id: int
    name: BucketName
    peak: float
    days: int
    data_through: datetime
    censored: bool


@dataclass(frozen=True, slots=True)
class TouchedBucket:
    """A published bucket whose limit or callers would change.

    Attributes:
        limit_now: As stored; null: unlimited.
        comparable: Whether its minutes can be held against the new limit: its callers would share
            it. Otherwise nobody knows which of its minutes they would take along.
        share_of_minutes_over: 0 to 1: the minutes on a broker in which its rate was over the new
            limit; null where it is not comparable, or was not looked up.
        entities: Whose values limit it now, and would.
    """

    bucket: PublishedBucket
    limit_now: float | None
    limit_new: float | None
    comparable: bool
    share_of_minutes_over: float | None = None
    entities: frozenset[ClientQuotaEntity] = frozenset()

    @property
    def highest_bin(self) -> int | None:
        """The bin of the new limit: minutes in those above are over it; null where none is.

        Minutes less than a bin over the limit, one percent, are missed.
        """
        limit = self.limit_new
        if limit is None or not self.bucket.peak > limit:
            return None
        return math.floor(math.log(limit) / math.log(BIN_RATIO)) if limit > 0 else ZERO_BIN

    @property
    def rank(self) -> tuple[float, int]:
        """How far the peak is above the new limit, the furthest first."""
        return -self.bucket.peak / (self.limit_new or math.inf), self.bucket.bucket_id


def touched_buckets(
    published: Sequence[PublishedBucket],
    alterations: Iterable[ClientQuotaAlteration],
    present: QuotaIndex,
    proposed: QuotaIndex,
    over: Callable[[QuotaIndex], ResolvingCallback] = KafkaQuotaCallback,
) -> list[TouchedBucket]:
    """Return the buckets that the alterations touch, at most ``MAX_BUCKETS``, by ``rank``.

    ``over`` returns what decides with an index.
    """
    worlds = [(index, over(index)) for index in (present, proposed)]
    by_name = {bucket.name: bucket for bucket in published}
    altered = ((caller, False) for caller in _callers_altered(alterations))
    touched: dict[BucketName, TouchedBucket] = {}
    for caller, is_bucket in (*((name, True) for name in by_name), *altered):
        now, new = (_resolved(*world, caller) for world in worlds)
        own = caller if is_bucket and caller == bucket_of(new) else bucket_of(now)
        bucket = by_name.get(own)
        if bucket is None or (is_bucket and own != caller) or not _differ(now, new):
            continue
        comparable = new.value is None or caller == bucket_of(new) == own
        sources = frozenset(each.source.entity for each in (now, new) if each.source is not None)
        found = TouchedBucket(bucket, now.value, new.value, comparable, entities=sources)
        touched.setdefault(own, found)
    return sorted(touched.values(), key=lambda each: each.rank)[:MAX_BUCKETS]


def _callers_altered(alterations: Iterable[ClientQuotaAlteration]) -> Iterator[BucketName]:
    """Yield who is limited by the altered entities, with an empty name for any other."""
    for alteration in alterations:
        names = alteration.entity.as_dict()
        for op in alteration.ops:
            if op.key in CLIENT_KEYS:
                yield BucketName(op.key, names.get(_USER) or "", names.get(_CLIENT_ID) or "")


def _resolved(index: QuotaIndex, callback: ResolvingCallback, caller: BucketName) -> ResolvedQuota:
    user, client_id = caller.user or ANY_OTHER, caller.client_id or ANY_OTHER
    resolution = resolve_client(index, user, client_id, callback=callback)
    return resolution.quotas[QuotaKey(caller.key)]


def bucket_of(quota: ResolvedQuota) -> BucketName:
    """Return the bucket for one key, as the pipeline names it.

    Other tags than a user and a client-id, those of a quota callback, are a user: ``group:ops``.
    """
    tags = quota.shared_by
    if _USER in tags or _CLIENT_ID in tags:
        return BucketName(quota.key.value, tags.get(_USER, ""), tags.get(_CLIENT_ID, ""))
    others = ",".join(f"{tag}:{value}" for tag, value in sorted(tags.items()))
    return BucketName(quota.key.value, others, "")


def _differ(now: ResolvedQuota, new: ResolvedQuota) -> bool:
    is_same = now.value is new.value or now.value == new.value
    return not is_same or (new.value is not None and now.shared_by != new.shared_by)
