"""The rules of stale values, one value after the other, which the columns are held to.

Naive on purpose: plain Python over one caller and one value at a time.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.idle_values import IdleKind, IdleValue, entity_at, idle_values, level_of
from app.domain.resolution_levels import PRECEDENCE, PrecedenceLevel, Slot
from app.domain.right_sizes import alteration_body
from app.domain.stale_quotas import (
    ANONYMOUS,
    HIDES_CLIENTS,
    KINDS,
    MOST_WINNERS,
    Cause,
    StaleKind,
    Stored,
    stale_reason,
)

_Position = tuple[str, int, str, str]
"""A key, a level, and the names that the level names."""


class Seen(NamedTuple):
    """A user and client-id that was seen with a key, and the level that limited it.

    Attributes:
        is_pair: Whether both names are real; else they are the tags of a metric, and an empty one
            says nothing.
        level: 0 where nothing limited it.
        last: When it was seen last.
    """

    key: str
    user: str
    client_id: str
    is_pair: bool
    level: int
    last: datetime


@dataclass(frozen=True, slots=True)
class StaleValue:
    """A stored value that does nothing.

    Attributes:
        winners: The entities that go before it.
        last_seen: When a client of these names was seen; null: it was not.
    """

    kind: StaleKind
    entity: ClientQuotaEntity
    key: str
    value: float
    level: int
    reason: str
    winners: Sequence[ClientQuotaEntity]
    last_seen: datetime | None

    def body(self) -> Mapping[str, Any]:
        """Return what ``POST /quotas/alterations`` takes to remove it."""
        reason = f"{self.kind}: {self.reason}"
        return alteration_body(self.entity, self.key, None, self.value, reason)


@dataclass(frozen=True, slots=True)
class StaleRules:
    """What values are judged by.

    Attributes:
        days: Without traffic make a value idle.
        is_long: Whether the data are of so many days; else only the levels and the inventory tell.
        inventory: The users that there are; null where nobody says.
        recent: Keys of entities whose value is younger than the data.
    """

    days: int
    is_long: bool
    inventory: Collection[str] | None
    recent: Collection[tuple[ClientQuotaEntity, str]] = ()


def stale_values(quotas: Quotas, seen: Iterable[Seen], rules: StaleRules) -> Iterator[StaleValue]:
    """Yield each value that does nothing once, by entity and key."""
    by_level = {
        (each.entity, each.key): each
        for each in idle_values(quotas)
        if each.kind is not IdleKind.SHADOWED_FOR_CLIENTS
    }
    values = list(_values(quotas))
    traffic = _Traffic(seen, values)
    for value in values:
        if idle := by_level.get((value.entity, value.key)):
            yield _by_level(value, idle, rules.days, traffic.last(value))
        elif found := _by_inventory(value, rules, traffic) or _by_traffic(value, rules, traffic):
            yield found


def _values(quotas: Quotas) -> Iterator["_Value"]:
    for entity in sorted(quotas, key=ClientQuotaEntity.sort_key):
        row = level_of(entity)
        if row is not None:
            for key, value in sorted(quotas[entity].items()):
                yield _Value(entity, key, value, row)


@dataclass(frozen=True, slots=True)
class _Value:
    entity: ClientQuotaEntity
    key: str
    value: float
    row: PrecedenceLevel

    @property
    def names(self) -> tuple[str | None, str | None]:
        """User and client-id; null for any."""
        names = self.entity.as_dict()
        return names.get(EntityType.USER), names.get(EntityType.CLIENT_ID)

    @property
    def position(self) -> "_Position":
        """Whom it names, by key and level."""
        user, client_id = self.names
        return (self.key, self.row.level, *_named(self.row, user or "", client_id or ""))

    def stale(
        self,
        cause: "Cause",
        days: int,
        others: Sequence[ClientQuotaEntity] = (),
        last: datetime | None = None,
    ) -> StaleValue:
        names_another = cause in {Cause.GOES_BEFORE, Cause.SAME_EFFECT}
        about = Stored(others[0] if names_another else self.entity, self.key, self.value)
        return StaleValue(
            KINDS[cause],
            self.entity,
            self.key,
            self.value,
            self.row.level,
            stale_reason(cause, days, about),
            [] if cause is Cause.SAME_EFFECT else list(others),
            last,
        )


def _by_level(value: _Value, idle: IdleValue, days: int, last: datetime | None) -> StaleValue:
    is_shadowed = idle.kind is IdleKind.SHADOWED
    cause = Cause.GOES_BEFORE if is_shadowed else Cause.SAME_EFFECT
    return value.stale(cause, days, [idle.because_of], last)


def _by_inventory(value: _Value, rules: StaleRules, traffic: "_Traffic") -> StaleValue | None:
    user = value.names[0]
    if rules.inventory is None or user is None or user in rules.inventory or user == ANONYMOUS:
        return None
    if user in traffic.users:
        # Whoever is seen exists, whatever the inventory lacks.
        return None
    return value.stale(Cause.NOT_IN_INVENTORY, rules.days)


def _by_traffic(value: _Value, rules: StaleRules, traffic: "_Traffic") -> StaleValue | None:
    if not rules.is_long or (value.entity, value.key) in rules.recent:
        return None
    if traffic.is_effective(value):
        return None
    if value.row.level in HIDES_CLIENTS and value.key in traffic.hidden_clients:
        # A client-id of these names may be in a user's bucket.
        return None
    last, winners = traffic.last(value), traffic.winners(value)
    if Slot.NAMED not in (value.row.user, value.row.client_id):
        return value.stale(Cause.NO_FALLBACK, rules.days, winners, last)
    if last is None:
        return value.stale(Cause.NOT_SEEN, rules.days)
    return value.stale(Cause.OTHERS_FIRST, rules.days, winners, last) if winners else None


class _Traffic:
    """Who was seen, by what the values name."""

    def __init__(self, seen: Iterable[Seen], values: Iterable[_Value]) -> None:
        self.users: set[str] = set()
        self.hidden_clients: set[str] = set()
        self._effective: set[tuple[str, ClientQuotaEntity]] = set()
        self._last: dict[_Position, datetime | None] = {value.position: None for value in values}
        self._winners: dict[_Position, set[ClientQuotaEntity]] = defaultdict(set)
        levels = {(key, level) for key, level, *_ in self._last}
        self._levels = {
            key: [row for row in PRECEDENCE if (key, row.level) in levels] for key, _ in levels
        }
        for each in seen:
            self._add(each)

    def _add(self, each: Seen) -> None:
        if each.user:
            self.users.add(each.user)
        if not each.is_pair and not each.client_id:
            self.hidden_clients.add(each.key)
        winner = entity_at(each.level, each.user, each.client_id)
        if winner is not None:
            self._effective.add((each.key, winner))
        for row in self._levels.get(each.key, ()):
            position = (each.key, row.level, *_named(row, each.user, each.client_id))
            if position in self._last and _may_name(row, each):
                last = self._last[position]
                self._last[position] = each.last if last is None else max(each.last, last)
                if winner is not None and each.level < row.level:
                    self._winners[position].add(winner)

    def last(self, value: _Value) -> datetime | None:
        """Return when somebody of the value's names was seen last."""
        return self._last[value.position]

    def winners(self, value: _Value) -> list[ClientQuotaEntity]:
        """Return the entities that limited those of the value's names, at most ``MOST_WINNERS``."""
        found = self._winners.get(value.position, ())
        return sorted(found, key=ClientQuotaEntity.sort_key)[:MOST_WINNERS]

    def is_effective(self, value: _Value) -> bool:
        """Tell whether the value limited anybody."""
        return (value.key, value.entity) in self._effective


def _may_name(row: PrecedenceLevel, each: Seen) -> bool:
    """Tell whether a rule of a level can match these names: an empty one is matched by none."""
    has_user = row.user is Slot.ABSENT or each.user
    has_client = row.client_id is Slot.ABSENT or each.client_id
    return bool(has_user and has_client)


def _named(row: PrecedenceLevel, user: str, client_id: str) -> tuple[str, str]:
    return (
        user if row.user is Slot.NAMED else "",
        client_id if row.client_id is Slot.NAMED else "",
    )
