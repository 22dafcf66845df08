"""Budgets: what the quotas of a group of users or client-ids may add up to. Pure."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import nlargest
from itertools import chain, islice, takewhile
from typing import Final, NamedTuple

from app.domain.alterations import ClientQuotaAlteration, Quotas, Values, apply_ops
from app.domain.entities import (
    ALL_ENTITIES,
    DEFAULT_NAME,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    EntityType,
)
from app.domain.errors import Violation
from app.domain.quantities import value_in_words

Names = str | frozenset[str]
"""A prefix, or names. An empty prefix is every name, and the default, too."""

_LARGEST: Final = 5
"""So many entities of a sum are named."""

_LOCK: Final = "budget"
"""The entity type of a budget's lock; no broker has it, so no alteration can name it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What the values of all entities that match may add up to.

    Attributes:
        name: Names it in answers; its lock, too, which all processes share.
        limits: By key, before overbooking.
        users: Whose entities count; null: it does not say, and client-ids do.
        client_ids: Likewise. Where both are there an entity has to match both.
        overbooking: How much more than the limit may be promised, as a factor.
    """

    name: str
    limits: Mapping[str, Decimal]
    users: Names | None = None
    client_ids: Names | None = None
    overbooking: Decimal = Decimal(1)

    def covers(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the entity counts, whatever else it names."""
        names = dict(entity.entries)
        return _match(self.users, names, EntityType.USER) and _match(
            self.client_ids, names, EntityType.CLIENT_ID
        )

    def most(self, key: str) -> Decimal:
        """Return the largest sum of a key that it allows."""
        return self.limits[key] * self.overbooking

    @property
    def lock(self) -> ClientQuotaEntity:
        """What stands for it among the locks of entities."""
        return ClientQuotaEntity.of({_LOCK: self.name})

    @property
    def filters(self) -> Sequence[ClientQuotaFilter]:
        """What a broker is to be asked for, so that every entity that counts is there."""
        for kind, names in ((EntityType.USER, self.users), (EntityType.CLIENT_ID, self.client_ids)):
            if isinstance(names, frozenset):
                of_entity = ClientQuotaFilterComponent.of_entity
                return [ClientQuotaFilter((of_entity(kind, name),)) for name in sorted(names)]
        return [ALL_ENTITIES]


def _match(wanted: Names | None, names: Mapping[str, str | None], kind: str) -> bool:
    if wanted is None:
        return True
    if kind not in names:
        return False
    name = names[kind]
    if isinstance(wanted, frozenset):
        return name in wanted
    return name.startswith(wanted) if name is not None else not wanted


def budgets_of(
    budgets: Iterable[Budget], alterations: Sequence[ClientQuotaAlteration]
) -> tuple[Budget, ...]:
    """Return those of which alterations set a value: a removal cannot raise a sum."""
    return tuple(
        budget
        for budget in budgets
        if any(
            op.value is not None and op.key in budget.limits
            for alteration in alterations
            if budget.covers(alteration.entity)
            for op in alteration.ops
        )
    )


class _Counted:
    """Stored entities by name, so that those of a budget are found without a look at all others."""

    def __init__(self, stored: Quotas) -> None:
        self._stored = stored
        self._by_name: dict[str, dict[str | None, list[ClientQuotaEntity]]] = {}
        self._sorted: dict[str, list[str]] = {}

    def of(self, budget: Budget) -> dict[ClientQuotaEntity, Values]:
        """Return what a budget covers."""
        kind, names = EntityType.USER.value, budget.users
        if names is None:
            kind, names = EntityType.CLIENT_ID.value, budget.client_ids or frozenset()
        by_name = self._names(kind)
        wanted: Iterable[str | None] = names
        if isinstance(names, str):
            prefix, ordered = names, self._sorted[kind]
            following = islice(ordered, bisect_left(ordered, prefix), None)
            starting = takewhile(lambda name: name.startswith(prefix), following)
            wanted = starting if prefix else chain((DEFAULT_NAME,), starting)
        return {
            entity: self._stored[entity]
            for name in wanted
            for entity in by_name.get(name, ())
            if budget.covers(entity)
        }

    def _names(self, kind: str) -> Mapping[str | None, Sequence[ClientQuotaEntity]]:
        if kind not in self._by_name:
            found: dict[str | None, list[ClientQuotaEntity]] = {}
            for entity in self._stored:
                for own, name in entity.entries:
                    if own == kind:
                        found.setdefault(name, []).append(entity)
            self._by_name[kind] = found
            self._sorted[kind] = sorted(name for name in found if name is not DEFAULT_NAME)
        return self._by_name[kind]


class BudgetRow(NamedTuple):
    """How full a budget is.

    Attributes:
        sum: Of the values that are stored.
        entities: How many match.
        unlimited: How many of them lack the key, and count as nothing.
        largest: The largest values, at most five.
        without_value: Those that lack the key.
    """

    budget: Budget
    key: str
    sum: float
    entities: int
    unlimited: int
    largest: Sequence[tuple[ClientQuotaEntity, float]]
    without_value: Sequence[ClientQuotaEntity]

    @property
    def filled(self) -> float:
        """The sum of the most that it may be; infinite where that is nothing, but for no sum."""
        most = float(self.budget.most(self.key))
        if most > 0:
            return self.sum / most
        return math.inf if self.sum > 0 else 0.0


def budget_rows(budgets: Iterable[Budget], stored: Quotas) -> Iterator[BudgetRow]:
    """Yield how full each is, by budget in the order of the file, then by key."""
    counted = _Counted(stored)
    for budget in budgets:
        covered = counted.of(budget)
        for key in sorted(budget.limits):
            without = [entity for entity, held in covered.items() if key not in held]
            yield BudgetRow(
                budget,
                key,
                float(_sum(key, covered.values())),
                len(covered),
                len(without),
                _largest(key, covered),
                sorted(without, key=ClientQuotaEntity.sort_key),
            )


def budget_violations(
    budgets: Iterable[Budget], alterations: Sequence[ClientQuotaAlteration], stored: Quotas
) -> list[Violation]:
    """Return an entry for each sum that alterations would raise to more than a budget allows.

    A sum that they lower, or leave as it is, has none, wherever it ends.

    Args:
        budgets: Which are judged.
        alterations: No two of one entity.
        stored: What holds of every entity that the budgets cover.
    """
    after = {each.entity: apply_ops(stored.get(each.entity, {}), each.ops) for each in alterations}
    found, counted = [], _Counted(stored)
    for budget in budgets:
        others = {
            entity: held for entity, held in counted.of(budget).items() if entity not in after
        }
        changed = {entity: held for entity, held in after.items() if budget.covers(entity)}
        for key in sorted(budget.limits):
            least = _sum(key, others.values())
            before = least + _sum(key, (stored.get(entity, {}) for entity in changed))
            total = least + _sum(key, changed.values())
            if total > budget.most(key) and total > before:
                where = _first_raise(budget, key, alterations, stored)
                found.append(_exceeded(budget, key, float(total), {**others, **changed}, where))
    return found


def _exceeded(
    budget: Budget, key: str, total: float, quotas: Quotas, where: tuple[int, int]
) -> Violation:
    index, op = where
    most = value_in_words(key, float(budget.most(key)))
    detail = (
        f"Budget {budget.name}: {key} would add up to {value_in_words(key, total)}, and may to "
        f"{most} at most."
    )
    members = {
        "name": budget.name,
        "key": key,
        "sum": total,
        "limit": budget.limits[key],
        "overbooking": budget.overbooking,
        "largest": [
            {"entity": entity.as_dict(), "value": value} for entity, value in _largest(key, quotas)
        ],
    }
    pointer = f"/alterations/{index}/ops/{op}/value"
    return Violation(pointer, "budget-exceeded", detail, index=index, budget=members)


def _first_raise(
    budget: Budget, key: str, alterations: Sequence[ClientQuotaAlteration], stored: Quotas
) -> tuple[int, int]:
    return next(
        (index, position)
        for index, alteration in enumerate(alterations)
        if budget.covers(alteration.entity)
        for position, op in enumerate(alteration.ops)
        if op.key == key
        and op.value is not None
        and _counted(float(op.value)) > _sum(key, [stored.get(alteration.entity, {})])
    )


def _sum(key: str, values: Iterable[Values]) -> Decimal:
    """Add up without rounding; whole numbers, which most are, by themselves."""
    whole, rest = 0, Decimal(0)
    for held in values:
        value = held.get(key)
        if value is None:
            continue
        if value.is_integer():
            whole += int(value)
        else:
            rest += _counted(value)
    return whole + rest


def _counted(value: float) -> Decimal:
    """Return a stored value as it is written; what is no number limits nothing."""
    return Decimal(repr(value)) if math.isfinite(value) else Decimal("Infinity")


def _largest(key: str, quotas: Quotas) -> list[tuple[ClientQuotaEntity, float]]:
    held = ((entity, values[key]) for entity, values in quotas.items() if key in values)
    return nlargest(_LARGEST, held, key=lambda pair: (_counted(pair[1]), pair[0].sort_key()))
