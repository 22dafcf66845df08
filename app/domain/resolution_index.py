"""The stored quotas by entity, so that each level is one look-up, and the patterns in them.

A resolution follows from which levels have which keys, not from the names, and from a value only by
the notes about it. So of many identities with one pattern a single one needs to be resolved; the
others differ in their names and in the numbers of the values. All of them are looked up together.
"""

from collections import ChainMap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Final, NamedTuple, Self, TypeVar

from app.domain.addresses import enforced_address
from app.domain.alterations import ClientQuotaAlteration, Quotas, Values, apply_ops
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType, is_misleading
from app.domain.quota_keys import USER_CLIENT_TYPES, QuotaKey, keys_for
from app.domain.resolution_levels import (
    IP_PRECEDENCE,
    ORDINARY_BELOW,
    ORDINARY_FROM,
    PRECEDENCE,
    Bucket,
    ConfiguredQuota,
    notes_of,
)

_K = TypeVar("_K")
_V = TypeVar("_V")

ABSENT: Final = ...
"""Instead of a name: the rule's entity does not have this type."""

CLIENT_KEYS: Final = keys_for(frozenset(kind.value for kind in USER_CLIENT_TYPES))
"""The keys that limit a user and client-id."""

_USER: Final = EntityType.USER.value
_CLIENT_ID: Final = EntityType.CLIENT_ID.value
_IP: Final = EntityType.IP.value
_CONNECTIONS: Final = QuotaKey.CONNECTION_CREATION_RATE.value
_KINDS: Final[Mapping[tuple[str, ...], Bucket]] = {
    (_CLIENT_ID, _USER): Bucket.USER_CLIENT_ID,
    (_USER,): Bucket.USER,
    (_CLIENT_ID,): Bucket.CLIENT_ID,
}
_LOOK_UPS: Final = tuple((int(row.user), int(row.client_id)) for row in PRECEDENCE)

Name = str | None | EllipsisType
Rule = tuple[ClientQuotaEntity, Values]
Spellings = tuple[tuple[ClientQuotaEntity, float], ...]
RuleCounts = Mapping[str, Mapping[Bucket, int]]


def _over(below: Mapping[_K, _V], changed: Mapping[_K, _V]) -> Mapping[_K, _V]:
    """Return changed entries over those below; there is never more than one overlay.

    A removed entry stays, without content.
    """
    if isinstance(below, ChainMap):
        over, below = below.maps
        changed = {**over, **changed}
    return ChainMap(changed, below)  # type: ignore[arg-type]  # nobody writes to it


def _merged(store: Mapping[_K, _V]) -> Mapping[_K, _V]:
    return {**store.maps[1], **store.maps[0]} if isinstance(store, ChainMap) else store


def _find(store: Mapping[_K, _V], keys: Sequence[_K]) -> list[_V | None]:
    """Return what is stored under many keys; a call for each would cost more than the look-up."""
    if not isinstance(store, ChainMap):
        return list(map(store.get, keys))
    pairs = zip(*(map(entries.get, keys) for entries in store.maps), strict=True)
    return [below if changed is None else changed for changed, below in pairs]


@dataclass(frozen=True, slots=True)
class QuotaIndex:
    """Quotas by their level of the precedence. Built by ``of``, never changed.

    Attributes:
        quotas: The values of each entity.
        rules: The rule for a pair of names; ``ABSENT`` for a type that it has not.
        spellings: The ip entities with a limit, by the address enforced; null is the default.
        host_names: Names of ip entities with a limit that are not literal addresses. Every node
            looked them up for itself, so their addresses are missing here.
        counts: For each client key how many rules of each kind exist; the kind of a rule is the
            bucket that bears its names.
    """

    quotas: Quotas
    rules: Mapping[tuple[Name, Name], Rule]
    spellings: Mapping[str | None, Spellings]
    host_names: frozenset[str]
    counts: RuleCounts

    @classmethod
    def of(cls, quotas: Quotas) -> Self:
        """Arrange the quotas; the mapping is used, not copied, and must not change any more."""
        draft = _Draft(cls({}, {}, {}, frozenset(), _NO_RULES))
        for entity, values in quotas.items():
            draft.replace(entity, {}, values)
        host_names = frozenset(draft.host_names)
        spellings = {address: found for address, found in draft.spellings.items() if found}
        return cls(quotas, draft.rules, spellings, host_names, draft.counts)

    def with_alterations(self, alterations: Iterable[ClientQuotaAlteration]) -> Self:
        """Return the index as if the alterations, valid and canonical, had been applied in order.

        The work and the memory are those of the alterations, whatever the number of entities.
        """
        changed: dict[ClientQuotaEntity, Values] = {}
        for alteration in alterations:
            entity = alteration.entity
            before = changed[entity] if entity in changed else self.values_of(entity)
            changed[entity] = apply_ops(before, alteration.ops)
        return self.with_values(changed)

    def with_values(self, changed: Quotas) -> Self:
        """Return the index with the whole values of some entities replaced; empty ones remove one.

        On top of an index that was changed before, the work is that of these changes and of a copy
        of what was changed then.
        """
        draft = _Draft(self)
        for entity, values in changed.items():
            draft.replace(entity, self.values_of(entity), values)
        return type(self)(
            _over(self.quotas, changed),
            _over(self.rules, draft.rules),
            _over(self.spellings, draft.spellings),
            frozenset(draft.host_names),
            draft.counts,
        )

    @property
    def number_laid_over(self) -> int:
        """The number of entities whose values were replaced since the index was made."""
        return len(self.quotas.maps[0]) if isinstance(self.quotas, ChainMap) else 0

    def merged(self, quotas: Quotas) -> Self:
        """Return the same with nothing laid over it; ``quotas`` are all of its values."""
        rules, spellings = _merged(self.rules), _merged(self.spellings)
        return replace(
            self,
            quotas=quotas,
            rules={names: rule for names, rule in rules.items() if rule[1]},
            spellings={address: found for address, found in spellings.items() if found},
        )

    def values_of(self, entity: ClientQuotaEntity) -> Values:
        """Return the stored values of an entity; empty where there are none."""
        return self.quotas.get(entity) or {}

    def client_values(self, user: str, client_id: str) -> dict[str, list[ConfiguredQuota]]:
        """Return what is stored under these names or their defaults, by key, most specific first.

        A key without any value is left out.
        """
        stored: dict[str, list[ConfiguredQuota]] = {}
        for row, rule in zip(PRECEDENCE, self.rules_at(user, client_id), strict=True):
            if rule is not None:
                entity, values = rule
                for key, value in values.items():
                    quota = ConfiguredQuota(entity, row.level, row.source, value)
                    stored.setdefault(key, []).append(quota)
        return stored

    def rules_at(self, user: str, client_id: str) -> list[Rule | None]:
        """Return the rule at each level for these names or their defaults, most specific first."""
        users = (ABSENT, DEFAULT_NAME, user)
        client_ids = (ABSENT, DEFAULT_NAME, client_id)
        return _find(self.rules, [(users[user], client_ids[name]) for user, name in _LOOK_UPS])

    def rules_of_many(
        self, users: Sequence[str], client_ids: Sequence[str]
    ) -> list[Sequence[Rule | None]]:
        """Return for each level what ``rules_at`` returns for each pair of names."""
        number = len(users)
        by_slot = [
            ([ABSENT] * number, [DEFAULT_NAME] * number, names) for names in (users, client_ids)
        ]
        return [
            _find(self.rules, list(zip(by_slot[0][user], by_slot[1][client_id], strict=True)))
            for user, client_id in _LOOK_UPS
        ]

    def lone_kind(self, key: str) -> Bucket | None:
        """Return the only kind of rules that a client key has; null for none or several."""
        kinds = [kind for kind, count in self.counts[key].items() if count]
        return kinds[0] if len(kinds) == 1 else None


_NO_RULES: Final[RuleCounts] = {key.value: dict.fromkeys(Bucket, 0) for key in CLIENT_KEYS}


class _Draft:
    """What changes on top of an index."""

    def __init__(self, below: QuotaIndex) -> None:
        self.below = below
        self.rules: dict[tuple[Name, Name], Rule] = {}
        self.spellings: dict[str | None, Spellings] = {}
        self.host_names = set(below.host_names)
        self.counts = {key: dict(kinds) for key, kinds in below.counts.items()}

    def replace(self, entity: ClientQuotaEntity, before: Values, after: Values) -> None:
        """Replace an entity's values; one that names an ip limits it whatever else it names.

        Source: ``ClientQuotaMetadataManager.update`` for the precedence of ip.
        """
        names = dict(entity.entries)
        kind = _KINDS.get(tuple(names))
        if kind is not None:
            slots = (names.get(_USER, ABSENT), names.get(_CLIENT_ID, ABSENT))
            self.rules[slots] = (entity, after)
            self._count(kind, before, -1)
            self._count(kind, after, 1)
        elif _IP in names:
            self._replace_ip(entity, names[_IP], after.get(_CONNECTIONS))

    def _count(self, kind: Bucket, values: Values, step: int) -> None:
        for key in values:
            if key in self.counts:
                self.counts[key][kind] += step

    def _replace_ip(self, entity: ClientQuotaEntity, name: str | None, limit: float | None) -> None:
        address = DEFAULT_NAME if name is DEFAULT_NAME else enforced_address(name)
        if name is not DEFAULT_NAME and address is None:
            self.host_names.discard(name) if limit is None else self.host_names.add(name)
            return
        spellings = self.spellings.get(address, self.below.spellings.get(address)) or ()
        others = tuple(rule for rule in spellings if rule[0] != entity)
        self.spellings[address] = others if limit is None else (*others, (entity, limit))


_IP_KEY: Final = QuotaKey.CONNECTION_CREATION_RATE
CLIENT_LEVELS: Final = tuple(row.level for row in PRECEDENCE)
_NOTHING: Final = 0
"""Instead of a number: no rule there."""


class Stored(NamedTuple):
    """What is stored for many identities, in their order.

    Attributes:
        patterns: Equal patterns are resolved alike, but for names and numbers; a null one is a case
            of its own.
        rules: For each level the rules found there. Which levels have one, and the keys of its
            values, belongs to the pattern.
    """

    patterns: Sequence[Hashable]
    rules: Mapping[int, Sequence[Rule | None]]


class Patterns:
    """Finds the patterns of identities in one index."""

    def __init__(self, index: QuotaIndex) -> None:
        self._index = index
        self._numbers: dict[Hashable, int] = {}

    def of_clients(self, users: Sequence[str], client_ids: Sequence[str]) -> Stored:
        """Return what is stored for pairs of a user and a client-id; either may be empty.

        The pattern is null where a name has a warning, which is a note of its own.
        """
        columns = self._index.rules_of_many(users, client_ids)
        patterns: list[Hashable] = list(
            zip(map(bool, users), map(bool, client_ids), *map(self._of_rules, columns), strict=True)
        )
        for at, (user, client_id) in enumerate(zip(users, client_ids, strict=True)):
            if is_misleading(_USER, user) or is_misleading(_CLIENT_ID, client_id):
                patterns[at] = None
        return Stored(patterns, dict(zip(CLIENT_LEVELS, columns, strict=True)))

    def of_addresses(self, addresses: Sequence[str | None]) -> Stored:
        """Return what is stored for canonical addresses.

        The pattern is null where an address is none, or where its own rule is not spelled like it
        or is one of several: these have notes of their own.
        """
        find = self._index.spellings.get
        default = _first(find(DEFAULT_NAME) or ())
        last = self._of_rule(default)
        spellings = [(address and find(address)) or () for address in addresses]
        own = [_first(rules) for rules in spellings]
        patterns: list[Hashable] = [
            (number, last) if _is_plain(address, rules) else None
            for address, rules, number in zip(
                addresses, spellings, self._of_rules(own), strict=True
            )
        ]
        levels = [level for level, _ in IP_PRECEDENCE]
        return Stored(patterns, dict(zip(levels, (own, [default] * len(own)), strict=True)))

    def _of_rules(self, rules: Sequence[Rule | None]) -> Sequence[int]:
        """Return the numbers of rules; neighbours are often the same rule."""
        last, number = None, _NOTHING
        numbers = []
        for rule in rules:
            if rule is not last:
                last, number = rule, self._of_rule(rule)
            numbers.append(number)
        return numbers

    def _of_rule(self, rule: Rule | None) -> int:
        """Return the number of a rule's keys and of the notes about their values."""
        if rule is None:
            return _NOTHING
        values = rule[1]
        content: Hashable = tuple(values)
        for value in values.values():
            if not ORDINARY_FROM <= value < ORDINARY_BELOW:
                content = tuple([(key, *notes_of(key, number)) for key, number in values.items()])
                break
        return self._numbers.setdefault(content, len(self._numbers) + 1)


def _first(rules: Spellings) -> Rule | None:
    return (rules[0][0], {_IP_KEY: rules[0][1]}) if rules else None


def _is_plain(address: str | None, rules: Spellings) -> bool:
    if address is None:
        return False
    canonical = ClientQuotaEntity(((EntityType.IP.value, address),))
    return not rules or [entity for entity, _ in rules] == [canonical]
