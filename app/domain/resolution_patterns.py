"""What is decided alike: the pattern of what is stored for an identity, whatever its names.

A resolution follows from which levels have which keys, not from the names, and from a value only by
the notes about it. So of many identities with one pattern a single one needs to be resolved; the
others differ in their names and in the numbers of the values. All of them are looked up together.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType
from app.domain.quota_keys import QuotaKey
from app.domain.resolution_index import QuotaIndex, Rule, Spellings
from app.domain.resolution_levels import IP_PRECEDENCE, PRECEDENCE
from app.domain.resolution_notes import ORDINARY_BELOW, ORDINARY_FROM, notes_of

_CONNECTIONS: Final = QuotaKey.CONNECTION_CREATION_RATE
CLIENT_LEVELS: Final = tuple(row.level for row in PRECEDENCE)
_NOTHING: Final = 0
"""In the place of a number: no rule there."""


class Stored(NamedTuple):
    """What is stored for many identities, in their order.

    Attributes:
        patterns: Equal patterns are resolved alike, but for names and numbers; a null one is a case
            of its own.
        rules: For each level the rules found there. Which levels have one, and the keys of its
            values, is part of the pattern.
    """

    patterns: Sequence[Hashable]
    rules: Mapping[int, Sequence[Rule | None]]


class Patterns:
    """Finds the patterns of identities in one index."""

    def __init__(self, index: QuotaIndex) -> None:
        self._index = index
        self._known: dict[Hashable, int] = {}

    def of_client(self, user: str, client_id: str) -> tuple[Hashable, Sequence[Rule | None]]:
        """Return the pattern of a pair of names, and the rule at each level."""
        rules = self._index.rules_at(user, client_id)
        number = self._of_rule
        numbers = [_NOTHING if rule is None else number(rule) for rule in rules]
        return (bool(user), bool(client_id), *numbers), rules

    def of_clients(self, users: Sequence[str], client_ids: Sequence[str]) -> Stored:
        """Return what is stored for pairs of a user and a client-id; either may be empty."""
        columns = self._index.rules_of_many(users, client_ids)
        patterns = zip(
            map(bool, users),
            map(bool, client_ids),
            *map(self._of_rules, columns),
            strict=True,
        )
        return Stored(list(patterns), dict(zip(CLIENT_LEVELS, columns, strict=True)))

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
        levels = [row.level for row in IP_PRECEDENCE]
        return Stored(patterns, dict(zip(levels, (own, [default] * len(own)), strict=True)))

    def _of_rules(self, rules: Sequence[Rule | None]) -> Sequence[int]:
        """Return the numbers of rules; often it is one and the same rule, or none."""
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
        said: Hashable = tuple(values)
        for value in values.values():
            if not ORDINARY_FROM <= value < ORDINARY_BELOW:
                said = tuple([(key, *notes_of(key, one)) for key, one in values.items()])
                break
        return self._known.setdefault(said, len(self._known) + 1)


def _first(rules: Spellings) -> Rule | None:
    return (rules[0][0], {_CONNECTIONS: rules[0][1]}) if rules else None


def _is_plain(address: str | None, rules: Spellings) -> bool:
    if address is None:
        return False
    canonical = ClientQuotaEntity(((EntityType.IP.value, address),))
    return not rules or [entity for entity, _ in rules] == [canonical]
