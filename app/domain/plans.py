"""Plans: what a document of desired quotas would change, worked out before anything is sent.

Without ``prune`` nothing is removed: keys that the document does not name stay as they are. With it
the keys inside the scope are removed that the owner applied before, that still have the value it
applied, and that the document does not name any more.

An owner holds the keys that it applied. A key has one owner; alterations have none, so a key that
was never applied from a plan is nobody's.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from app.domain.alterations import (
    ClientQuotaAlteration,
    DesiredValue,
    Op,
    Quotas,
    ReadSet,
    Values,
    apply_ops,
    canonical_entity,
    exact_float,
    same_value,
)
from app.domain.drastic import DRASTIC, drastic_changes
from app.domain.entities import (
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    EntityWarning,
    entity_warnings,
)
from app.domain.errors import Violation, pointer_token
from app.domain.expiry import NO_EXPIRIES, Expiries, TemporaryValue, temporary_of
from app.domain.quota_keys import TWO_TO_63
from app.domain.validation import judge


@dataclass(frozen=True, slots=True)
class DesiredQuota:
    """One entity of the document."""

    entity: ClientQuotaEntity
    values: Mapping[str, DesiredValue | None]
    """Null: the key is to have no value."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is desired, and what may be touched for it.

    Attributes:
        quotas: The document, in its order.
        owner: In whose name it is applied.
        prune: Remove what the owner applied before and the document does not name any more.
        adopt: Let the owner hold the keys of the document that have their values already.
        scope: Any of these must match an entity; none is every entity.
    """

    quotas: tuple[DesiredQuota, ...]
    owner: str
    prune: bool = False
    adopt: bool = False
    scope: tuple[ClientQuotaFilterComponent, ...] = ()

    def covers(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the entity may be touched."""
        return not self.scope or any(component.matches(entity) for component in self.scope)


@dataclass(frozen=True, slots=True)
class Holding:
    """Who applied a key, and the value that was applied."""

    owner: str
    value: float


Holdings = Mapping[ClientQuotaEntity, Mapping[str, Holding]]
"""The keys that are held, by entity."""

Holders = Mapping[str, str | None]
"""The owner of each key; null where nobody holds it."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What would be done to one entity, and what it means.

    ``before`` and ``after`` are the whole entity's values; ``impact`` is a document.
    ``changed_since`` has the keys whose stored value is not the one that their owner applied.
    """

    alteration: ClientQuotaAlteration
    before: Values
    after: Values
    holders: Holders
    changed_since: Mapping[str, Holding] = field(default_factory=dict)
    impact: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A key that another owner holds and that the plan would change.

    Attributes:
        held: The value that this owner applied.
        current: The value that is stored.
        proposed: Null where the key would be removed.
    """

    entity: ClientQuotaEntity
    key: str
    owner: str
    held: float
    current: float
    proposed: float | None


class WhyKept(StrEnum):
    """Why a key that the document does not name any more is not removed."""

    CHANGED_SINCE = "changed-since"


@dataclass(frozen=True, slots=True)
class Unpruned:
    """A key of the owner's that is left as it is although the document does not name it."""

    entity: ClientQuotaEntity
    key: str
    value: float
    reason: WhyKept


@dataclass(frozen=True, slots=True)
class TemporaryKey:
    """A key whose value is for a time: the plan leaves it, and only force ends that.

    Attributes:
        value: That for a time; null: the key is removed for a time.
        proposed: What the document wants; null where the key is to have no value.
        owner: Who holds the key, or null.
    """

    entity: ClientQuotaEntity
    key: str
    value: float | None
    returns_to: float | None
    expires_at: datetime
    proposed: Decimal | None
    owner: str | None

    @property
    def op(self) -> Op:
        """What force does."""
        return Op(self.key, self.proposed, remove=self.proposed is None)


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done, in the order of the entities.

    Attributes:
        changes: One for each entity that is touched.
        conflicts: What only force would do.
        unpruned: What pruning leaves.
        temporary: What is for a time of that which the document names, or pruning would remove.
        rests_on: The values that the plan was made from.
        violations: Broken rules of what would change; with any of them there is no plan.
        warnings: About entities of the document, in its order; those that it only names have none.
            Then about changes that are drastic.
    """

    changes: tuple[PlannedChange, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    unpruned: tuple[Unpruned, ...] = ()
    rests_on: ReadSet = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    warnings: tuple[EntityWarning, ...] = ()
    temporary: tuple[TemporaryKey, ...] = ()


def base_of(cluster_id: str, plan: Plan) -> str:
    """Return SHA-256, in hexadecimal digits, of the values and the owners that a plan rests on.

    Two plans of one cluster with the same base were made from the same values.
    """
    values = sorted(_values(plan.rests_on))
    owners = [
        [change.alteration.entity.entries, sorted(change.holders.items())]
        for change in plan.changes
    ]
    text = json.dumps([cluster_id, values, owners], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _values(rests_on: ReadSet) -> Iterable[list[str]]:
    """Write each entity as text, so that absent names and nulls can be sorted."""
    for entity, values in rests_on.items():
        texts = {
            key: None if value is None else float(value).hex() for key, value in values.items()
        }
        yield [json.dumps(entity.entries), json.dumps(texts, sort_keys=True)]


_NOT_A_NUMBER: Final = (
    "NaN and the infinities are read where other tools stored them; nobody may set them here."
)

_PRUNE: Final = "/prune"
_POINTER: Final = re.compile(r"/alterations(?:/(\d+)(?:/ops(?:/(\d+)(?:/\w+)?)?|/entity(.*))?)?")


def _quota_pointer(position: int) -> str:
    return f"/document/quotas/{position}"


def _key_pointer(position: int, key: str) -> str:
    return f"{_quota_pointer(position)}/values/{pointer_token(key)}"


def _sent_entity(entity: ClientQuotaEntity) -> ClientQuotaEntity:
    """Return the entity that a set would be stored under: an address in its canonical text."""
    return canonical_entity(ClientQuotaAlteration(entity, (Op("", Decimal(1)),)), {})


def _may_be_sent(alteration: ClientQuotaAlteration, stored: Quotas) -> bool:
    """Tell whether an alteration, on its own, breaks no rule and keeps its entity's spelling."""
    judged = judge([alteration], stored)
    return not judged.violations and judged.alterations[0].entity == alteration.entity


def make_plan(
    wanted: PlanRequest, stored: Quotas, holdings: Holdings, expiries: Expiries = NO_EXPIRIES
) -> Plan:
    """Compare a document with what is stored.

    Only what would change is judged: what other tools stored and nobody wants to change is no
    error, however odd.

    Args:
        wanted: What is desired.
        stored: Every value of the cluster.
        holdings: At least those of the document's entities, and the owner's own.
        expiries: What is for a time: it is no drift from the document, and stays.
    """
    draft = _Draft(wanted, stored, holdings, expiries)
    for position, desired in enumerate(wanted.quotas):
        draft.add(position, desired)
    if wanted.prune:
        draft.prune()
    return draft.plan()


class _Draft:
    """What was found so far."""

    def __init__(
        self, wanted: PlanRequest, stored: Quotas, holdings: Holdings, expiries: Expiries
    ) -> None:
        self._wanted = wanted
        self._expiries = expiries
        self._temporary: list[TemporaryKey] = []
        self._stored = stored
        self._holdings = holdings
        self._ops: dict[ClientQuotaEntity, list[tuple[Op, str]]] = {}
        """With the pointer that each operation comes from."""
        self._rests_on: dict[ClientQuotaEntity, dict[str, float | None]] = {}
        self._positions: dict[ClientQuotaEntity, int] = {}
        self._named: dict[ClientQuotaEntity, Collection[str]] = {}
        self._unpruned: list[Unpruned] = []
        self._violations: list[Violation] = []

    def add(self, position: int, desired: DesiredQuota) -> None:
        """Compare one entity of the document."""
        entity = self._entity(desired)
        if not self._wanted.covers(entity):
            self._refuse(position, "outside-scope", f"{entity}: {_OUTSIDE}")
            return
        earlier = self._positions.setdefault(entity, position)
        if earlier != position:
            self._refuse(position, "duplicate-entity", f"{entity}: the same as item {earlier}.")
            return
        present = self._stored.get(entity, {})
        held = temporary_of(entity, present, self._expiries)
        named = self._named[entity] = sorted(desired.values)
        self._rests_on[entity] = {key: present.get(key) for key in named if key not in held}
        for key in named:
            if key in held:
                self._leave(held[key], desired.values[key])
                continue
            self._compare(position, entity, key, desired.values[key])

    def _entity(self, desired: DesiredQuota) -> ClientQuotaEntity:
        """Return the entity that is meant: as it is spelled where nothing would be set."""
        present = self._stored.get(desired.entity)
        if present is not None and all(
            value is None or holds(present.get(key), value) for key, value in desired.values.items()
        ):
            return desired.entity
        return _sent_entity(desired.entity)

    def _compare(
        self, position: int, entity: ClientQuotaEntity, key: str, value: DesiredValue | None
    ) -> None:
        present = self._stored.get(entity, {})
        pointer = _key_pointer(position, key)
        if holds(present.get(key), value):
            if isinstance(value, Decimal) and self._is_adopted(entity, key, value):
                self._note(entity, Op(key, value), pointer)
        elif value is None:
            self._note(entity, Op(key, remove=True), pointer)
        elif isinstance(value, float):
            detail = f"{entity} {key}: {_NOT_A_NUMBER}"
            self._violations.append(Violation(pointer, "not-finite", detail))
        else:
            self._note(entity, Op(key, value), pointer)

    def _leave(self, held: TemporaryValue, proposed: DesiredValue | None) -> None:
        """List a key whose value is for a time; what only its tool can write is not proposed."""
        if isinstance(proposed, float):
            return
        entity, key = held.entity, held.key
        holding = self._holdings.get(entity, {}).get(key)
        owner = None if holding is None else holding.owner
        self._temporary.append(
            TemporaryKey(entity, key, held.value, held.returns_to, held.expires_at, proposed, owner)
        )

    def _is_adopted(self, entity: ClientQuotaEntity, key: str, value: Decimal) -> bool:
        if not self._wanted.adopt:
            return False
        holding = self._holdings.get(entity, {}).get(key)
        if holding == Holding(self._wanted.owner, self._stored[entity][key]):
            return False
        return _may_be_sent(ClientQuotaAlteration(entity, (Op(key, value),)), self._stored)

    def prune(self) -> None:
        """Remove what the owner applied and the document does not name."""
        wanted = self._wanted
        for entity, keys in self._holdings.items():
            if not wanted.covers(entity):
                continue
            for key, holding in sorted(keys.items()):
                named = key in self._named.get(entity, ())
                if holding.owner == wanted.owner and not named:
                    self._prune_key(entity, key, holding)

    def _prune_key(self, entity: ClientQuotaEntity, key: str, holding: Holding) -> None:
        values = self._stored.get(entity, {})
        if (held := temporary_of(entity, values, self._expiries).get(key)) is not None:
            self._leave(held, None)
            return
        present = values.get(key)
        if present is None:
            return
        if not same_value(present, holding.value):
            self._unpruned.append(Unpruned(entity, key, present, WhyKept.CHANGED_SINCE))
            return
        self._rests_on.setdefault(entity, {})[key] = present
        self._note(entity, Op(key, remove=True), _PRUNE)

    def _note(self, entity: ClientQuotaEntity, op: Op, pointer: str) -> None:
        self._ops.setdefault(entity, []).append((op, pointer))

    def _refuse(self, position: int, code: str, detail: str) -> None:
        pointer = f"{_quota_pointer(position)}/entity"
        self._violations.append(Violation(pointer, code, detail))

    def plan(self) -> Plan:
        """Return what was found, judged."""
        entities = sorted(self._ops, key=ClientQuotaEntity.sort_key)
        alterations = [
            ClientQuotaAlteration(entity, tuple(op for op, _ in self._ops[entity]))
            for entity in entities
        ]
        broken = (*self._violations, *self._broken_rules(alterations))
        changes = (
            tuple(self._change(alteration) for alteration in alterations) if not broken else ()
        )
        return Plan(
            changes,
            tuple(conflict for change in changes for conflict in self._conflicts(change)),
            tuple(sorted(self._unpruned, key=lambda item: (item.entity.sort_key(), item.key))),
            self._rests_on,
            broken,
            (*self._name_warnings(), *_drastic_warnings(changes)),
            tuple(sorted(self._temporary, key=lambda item: (item.entity.sort_key(), item.key))),
        )

    def _name_warnings(self) -> Iterator[EntityWarning]:
        for desired in self._wanted.quotas:
            if desired.values:
                yield from entity_warnings(desired.entity)

    def _broken_rules(self, alterations: Sequence[ClientQuotaAlteration]) -> Iterator[Violation]:
        """Yield every rule that the alterations break, with its pointer into the document."""
        if not alterations:
            return
        for violation in judge(alterations, self._stored).violations:
            pointer = self._pointer(violation.pointer, alterations)
            index = violation.index
            of = "" if index is None else f"{alterations[index].entity}: "
            yield replace(violation, pointer=pointer, detail=f"{of}{violation.detail}", index=None)

    def _pointer(self, pointer: str, alterations: Sequence[ClientQuotaAlteration]) -> str:
        found = _POINTER.fullmatch(pointer)
        if found is None or found[1] is None:
            return "/document/quotas"
        entity = alterations[int(found[1])].entity
        if found[2] is not None:
            return self._ops[entity][int(found[2])][1]
        position = self._positions.get(entity)
        own = _PRUNE if position is None else f"{_quota_pointer(position)}/entity"
        return f"{own}{found[3] or ''}"

    def _change(self, alteration: ClientQuotaAlteration) -> PlannedChange:
        before = self._stored.get(alteration.entity, {})
        held = self._holdings.get(alteration.entity, {})
        holders = {op.key: held[op.key].owner if op.key in held else None for op in alteration.ops}
        after = apply_ops(before, alteration.ops)
        changed = {key: held[key] for key in holders if is_changed(held.get(key), before.get(key))}
        return PlannedChange(alteration, before, after, holders, changed)

    def _conflicts(self, change: PlannedChange) -> list[Conflict]:
        entity = change.alteration.entity
        held = self._holdings.get(entity, {})
        return [
            Conflict(entity, key, owner, held[key].value, change.before[key], change.after.get(key))
            for key, owner in change.holders.items()
            if owner is not None and owner != self._wanted.owner and key in change.before
        ]


def _drastic_warnings(changes: Iterable[PlannedChange]) -> Iterator[EntityWarning]:
    for change in changes:
        alteration = change.alteration
        for drastic in drastic_changes(change.before, alteration.ops):
            yield EntityWarning(alteration.entity, DRASTIC, drastic.detail)


def is_changed(holding: Holding | None, present: float | None) -> bool:
    """Tell whether a key has not the value any more that its owner applied, or none at all."""
    if holding is None:
        return False
    return present is None or not same_value(present, holding.value)


_OUTSIDE: Final = "This entity is outside the scope; widen the scope or leave the entity out."


def holds(present: float | None, value: DesiredValue | None) -> bool:
    """Tell whether a value is stored, or none; beyond 2^63 it is listed by its shortest text."""
    if present is None or value is None:
        return present is value
    if isinstance(value, float):
        return same_value(present, value)
    exact = exact_float(value)
    if exact is None and abs(value) > TWO_TO_63:
        exact = float(value)
    return exact is not None and present == exact
