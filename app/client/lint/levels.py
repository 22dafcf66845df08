"""Rules that other rules hide, and rules that change nothing. Source: ``PRECEDENCE``."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from app.client.entities import Entity, show_entity
from app.client.lint.finding import Finding, Severity, alter_line
from app.client.values import show_value
from app.domain.resolution_levels import PRECEDENCE, PrecedenceLevel, Slot

Quota = Mapping[str, Any]
Names = tuple[str | None, str | None]
"""User and client-id of a rule where they are named; null where they are a default or absent."""

_KINDS: Final = ("user", "client-id")

_HIDING: Final[Mapping[int, tuple[int, ...]]] = {7: (4, 5, 6), 8: (5, 6)}
"""By level, the levels each of which takes every connection away from it: all connections have a
user, and a rule for client-ids alone needs a client-id that is not empty."""

_HIDING_CLIENTS: Final[Mapping[int, int]] = {3: 2, 6: 5}
"""The level that takes every connection with a client-id away."""


class Levels:
    """The rules for users and client-ids, by key, level and names."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        self._rules: dict[str, dict[int, dict[Names, tuple[Entity, Any]]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for quota in quotas:
            row = level_of(quota["entity"])
            if row is not None:
                for key, value in quota["values"].items():
                    names = _names(quota["entity"])
                    self._rules[key][row.level][names] = (quota["entity"], value)

    def findings(self) -> Iterator[Finding]:
        """Yield what is hidden, and what repeats what applies without it."""
        for key, levels in self._rules.items():
            for row in PRECEDENCE:
                for names, (entity, value) in levels.get(row.level, {}).items():
                    finding = self._hidden(key, row, names, entity)
                    yield from [finding] if finding else self._repeated(key, row, entity, value)

    def _hidden(
        self, key: str, row: PrecedenceLevel, names: Names, entity: Entity
    ) -> Finding | None:
        for level in _HIDING.get(row.level, ()):
            other = self._at(key, level, names)
            if other is not None:
                message = f"never applies: {show_entity(other[0])} goes before it for everybody"
                fix = alter_line(entity, delete=[key])
                return Finding("shadowed", Severity.WARNING, entity, key, message, (fix,))
        other = self._at(key, _HIDING_CLIENTS.get(row.level, 0), names)
        if other is None:
            return None
        message = (
            "applies to connections without a client-id only: "
            f"{show_entity(other[0])} goes before it for all others"
        )
        return Finding("shadowed-for-clients", Severity.HINT, entity, key, message)

    def _at(self, key: str, level: int, names: Names) -> tuple[Entity, Any] | None:
        """Return the rule of a level for these names, or null."""
        if not level:
            return None
        row = PRECEDENCE[level - 1]
        wanted = tuple(
            name if slot is Slot.NAMED else None
            for name, slot in zip(names, (row.user, row.client_id), strict=True)
        )
        return self._rules[key].get(level, {}).get((wanted[0], wanted[1]))

    def _repeated(
        self, key: str, row: PrecedenceLevel, entity: Entity, value: Any
    ) -> Iterator[Finding]:
        """Yield a finding where the next rule for all the same connections has the same effect.

        The same value alone is not enough: who shares it must be the same as well.
        """
        names = _names(entity)
        for following in PRECEDENCE[row.level :]:
            rules = self._rules[key].get(following.level)
            if not rules:
                continue
            if not _covers(following, row):
                return
            found = self._at(key, following.level, names)
            if found is None:
                continue
            if found[1] == value and following.bucket is row.bucket:
                message = f"changes nothing: {show_entity(found[0])} gives {show_value(value)} too"
                fix = alter_line(entity, delete=[key])
                yield Finding("redundant", Severity.HINT, entity, key, message, (fix,))
            return


def _covers(following: PrecedenceLevel, row: PrecedenceLevel) -> bool:
    """Tell whether a rule of a level applies to all connections of a rule, or to none of them."""
    slots = ((following.user, row.user), (following.client_id, row.client_id))
    return all(theirs is not Slot.NAMED or ours is Slot.NAMED for theirs, ours in slots)


def _names(entity: Entity) -> Names:
    return entity.get("user"), entity.get("client-id")


def level_of(entity: Entity) -> PrecedenceLevel | None:
    """Return the level of an entity of users and client-ids; null for an ip."""
    if "ip" in entity:
        return None
    slots = [_slot(entity, kind) for kind in _KINDS]
    return next((row for row in PRECEDENCE if [row.user, row.client_id] == slots), None)


def _slot(entity: Entity, kind: str) -> Slot:
    if kind not in entity:
        return Slot.ABSENT
    return Slot.DEFAULT if entity[kind] is None else Slot.NAMED
