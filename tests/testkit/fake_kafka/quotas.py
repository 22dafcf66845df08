"""What a controller does to quotas, and what a broker answers to a filter.

Whatever is asked is taken to be valid: the service refuses the rest unsent. Held to the real broker
by the contract tests.

Source: ``ClientQuotaControlManager`` and ``ClientQuotasImage`` of Kafka 4.3.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Write

Values = dict[str, float]
Quotas = Mapping[ClientQuotaEntity, Values]


class Entry(NamedTuple):
    """What is asked for one entity; a value of null removes the key."""

    entity: ClientQuotaEntity
    ops: Sequence[tuple[str, float | None]]


class Verdict(NamedTuple):
    """One entry of the answer to an alter."""

    entity: ClientQuotaEntity
    code: int
    message: str | None


def for_all(entries: Iterable[Entry], code: int, message: str | None) -> list[Verdict]:
    return [Verdict(entry.entity, code, message) for entry in entries]


def changes_of(entries: Iterable[Entry], quotas: Quotas) -> list[Write]:
    """Return the records that the controller appends as one batch."""
    return [
        Write(entry.entity, key, value)
        for entry in entries
        for key, value in entry.ops
        if quotas.get(entry.entity, {}).get(key) != value
    ]


def apply(change: Write, quotas: dict[ClientQuotaEntity, Values]) -> None:
    """Apply one record; the last key of an entity takes the entity with it."""
    values = quotas.setdefault(change.entity, {})
    if change.value is None:
        values.pop(change.key, None)
    else:
        values[change.key] = change.value
    if not values:
        del quotas[change.entity]


class Component(NamedTuple):
    """One component of a filter: match kind 0 exact, 1 default, 2 any."""

    entity_type: str
    match_type: int
    match: str | None


def describe(components: Sequence[Component], quotas: Quotas, *, strict: bool) -> Quotas:
    """Return the entries of the answer to a describe."""
    return {
        entity: values
        for entity, values in quotas.items()
        if (not strict or len(entity.entries) == len(components))
        and all(_matches(component, entity) for component in components)
    }


def _matches(component: Component, entity: ClientQuotaEntity) -> bool:
    names = dict(entity.entries)
    if component.entity_type not in names:
        return False
    return component.match_type == 2 or names[component.entity_type] == component.match
