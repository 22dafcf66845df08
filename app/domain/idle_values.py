"""Stored values that do nothing, whoever connects: the levels alone say so."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.resolution_index import QuotaIndex, Rule
from app.domain.resolution_levels import PRECEDENCE, PrecedenceLevel, Slot


class IdleKind(StrEnum):
    """Why a value does nothing.

    ``SHADOWED``: an entity goes before it for everybody; ``SHADOWED_FOR_CLIENTS``: for all who have
    a client-id; ``REDUNDANT``: without it the next entity has the same effect.
    """

    SHADOWED = "shadowed"
    SHADOWED_FOR_CLIENTS = "shadowed-for-clients"
    REDUNDANT = "redundant"


@dataclass(frozen=True, slots=True)
class IdleValue:
    """A stored value that does nothing; ``because_of`` is the entity that makes it so."""

    kind: IdleKind
    entity: ClientQuotaEntity
    key: str
    value: float
    because_of: ClientQuotaEntity


HIDING: Final[Mapping[int, tuple[int, ...]]] = {7: (4, 5, 6), 8: (5, 6)}
"""By level, the levels each of which takes every connection away from it: all connections have a
user, and a rule for client-ids alone needs a client-id that is not empty."""

HIDING_CLIENTS: Final[Mapping[int, int]] = {3: 2, 6: 5}
"""The level that takes every connection with a client-id away."""

_ANY_OTHER: Final = "\0"
"""Stands for a name that no rule has; Kafka's names cannot hold it."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A value for users and client-ids, its level, and the rules at each level for its names."""

    key: str
    row: PrecedenceLevel
    entity: ClientQuotaEntity
    value: float
    rules: Sequence[Rule | None]

    def at(self, level: int) -> Rule | None:
        """Return the rule of a level that has the key, or null."""
        rule = self.rules[level - 1]
        return rule if rule is not None and self.key in rule[1] else None

    def idle(self, kind: IdleKind, rule: Rule) -> IdleValue:
        """Say that the value does nothing because of a rule."""
        return IdleValue(kind, self.entity, self.key, self.value, rule[0])


def idle_values(quotas: Quotas) -> Iterator[IdleValue]:
    """Yield the values that do nothing, by key and level; quotas of addresses are left out."""
    values = sorted(_values(quotas), key=lambda value: (value.key, value.row.level))
    taken = {(value.key, value.row.level) for value in values}
    for value in values:
        found = _shadowed(value) or _redundant(value, taken)
        if found is not None:
            yield found


def level_of(entity: ClientQuotaEntity) -> PrecedenceLevel | None:
    """Return the level of an entity of users and client-ids; null for others."""
    names = entity.as_dict()
    if not names or not set(names) <= {EntityType.USER, EntityType.CLIENT_ID}:
        return None
    slots = tuple(_slot(names, kind) for kind in (EntityType.USER, EntityType.CLIENT_ID))
    return next(row for row in PRECEDENCE if (row.user, row.client_id) == slots)


def entity_at(level: int, user: str, client_id: str) -> ClientQuotaEntity | None:
    """Return the entity of a level that limits these names; null for level 0."""
    if level == 0:
        return None
    row = PRECEDENCE[level - 1]
    slots = ((EntityType.USER, row.user, user), (EntityType.CLIENT_ID, row.client_id, client_id))
    return ClientQuotaEntity.of(
        {
            kind.value: name if slot is Slot.NAMED else None
            for kind, slot, name in slots
            if slot is not Slot.ABSENT
        }
    )


def _slot(names: Mapping[str, str | None], kind: EntityType) -> Slot:
    if kind not in names:
        return Slot.ABSENT
    return Slot.DEFAULT if names[kind] is None else Slot.NAMED


def _values(quotas: Quotas) -> Iterator[_Value]:
    index = QuotaIndex.of(quotas)
    for entity, values in quotas.items():
        row = level_of(entity)
        if row is not None:
            names = entity.as_dict()
            user, client_id = (names.get(kind) or _ANY_OTHER for kind in ("user", "client-id"))
            rules = index.rules_at(user, client_id)
            yield from (_Value(key, row, entity, value, rules) for key, value in values.items())


def _shadowed(value: _Value) -> IdleValue | None:
    for level in HIDING.get(value.row.level, ()):
        other = value.at(level)
        if other is not None:
            return value.idle(IdleKind.SHADOWED, other)
    clients = HIDING_CLIENTS.get(value.row.level)
    other = None if clients is None else value.at(clients)
    return None if other is None else value.idle(IdleKind.SHADOWED_FOR_CLIENTS, other)


def _redundant(value: _Value, taken: Collection[tuple[str, int]]) -> IdleValue | None:
    """Find the next rule for all the same connections, if it has the same effect.

    The same value alone is not enough: who shares it must be the same as well.
    """
    for following in PRECEDENCE[value.row.level :]:
        if (value.key, following.level) not in taken:
            continue
        if not covers(following, value.row):
            break
        found = value.at(following.level)
        if found is None:
            continue
        if found[1][value.key] == value.value and following.bucket is value.row.bucket:
            return value.idle(IdleKind.REDUNDANT, found)
        break
    return None


def covers(following: PrecedenceLevel, row: PrecedenceLevel) -> bool:
    """Tell whether a rule of a level applies to all connections of a rule, or to none of them."""
    slots = ((following.user, row.user), (following.client_id, row.client_id))
    return all(theirs is not Slot.NAMED or ours is Slot.NAMED for theirs, ours in slots)
