"""What a controller does to quotas, and what a broker answers to a filter.

Kafka's faults are included: NaN is accepted, a duplicate entity is refused although its first copy
is applied, an unknown key may be removed. Held to the real broker by the contract tests.

Source: ``ClientQuotaControlManager`` and ``ClientQuotasImage`` of Kafka 4.3.1.
"""

import ipaddress
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Write

NONE, UNSUPPORTED_VERSION, INVALID_REQUEST, POLICY_VIOLATION = 0, 35, 42, 44
MOST_RECORDS: Final = 10_000

_INT_MAX, _LONG_MAX = 2.0**31 - 1, 2.0**63
_USER_KEYS: Final = {
    "producer_byte_rate": ("LONG", _LONG_MAX),
    "consumer_byte_rate": ("LONG", _LONG_MAX),
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final = {"connection_creation_rate": ("INT", _INT_MAX)}
_SHORT_ADDRESS: Final = re.compile(r"\d{1,10}(\.\d{1,10}){0,3}")

Values = dict[str, float]
Quotas = Mapping[ClientQuotaEntity, Values]


class Entry(NamedTuple):
    """What is asked for one entity; a value of null removes the key, a key may come twice."""

    entity: ClientQuotaEntity
    ops: Sequence[tuple[str, float | None]]


class Verdict(NamedTuple):
    """One entry of the answer to an alter."""

    entity: ClientQuotaEntity
    code: int
    message: str | None


def for_all(entries: Iterable[Entry], code: int, message: str | None) -> list[Verdict]:
    return [Verdict(entry.entity, code, message) for entry in entries]


def judge(entries: Sequence[Entry], quotas: Quotas) -> tuple[list[Verdict], list[Write]]:
    """Return what the controller answers, and the records that it appends as one batch."""
    verdicts: dict[ClientQuotaEntity, Verdict] = {}
    changes: list[Write] = []
    for entry in entries:
        entity, keys = entry.entity, [key for key, _ in entry.ops]
        if entity in verdicts or len(set(keys)) < len(keys):
            text = f"Ignoring duplicate entity {_printed(entity)}"
            verdicts[entity] = Verdict(entity, INVALID_REQUEST, text)
            continue
        problem = _problem(entry)
        if problem is None:
            changes += _changes(entry, quotas.get(entity, {}))
        verdicts[entity] = Verdict(entity, INVALID_REQUEST if problem else NONE, problem)
    if len(changes) > MOST_RECORDS:
        text = "Request parameters do not satisfy the configured policy."
        return for_all(entries, POLICY_VIOLATION, text), []
    return list(verdicts.values()), changes


def apply(change: Write, quotas: dict[ClientQuotaEntity, Values]) -> None:
    """Apply one record; the last key of an entity takes the entity with it."""
    values = quotas.setdefault(change.entity, {})
    if change.value is None:
        values.pop(change.key, None)
    else:
        values[change.key] = change.value
    if not values:
        del quotas[change.entity]


def _changes(entry: Entry, now: Values) -> list[Write]:
    return [
        Write(entry.entity, key, value)
        for key, value in entry.ops
        if (key in now if value is None else not _same(now.get(key), value))
    ]


def _same(left: float | None, right: float) -> bool:
    """Compare as ``Double.equals`` does: NaN equals NaN."""
    return left == right or (left is not None and math.isnan(left) and math.isnan(right))


def _problem(entry: Entry) -> str | None:
    text = _entity_problem(entry.entity)
    if text is not None:
        return text
    keys = _IP_KEYS if "ip" in entry.entity.types else _USER_KEYS
    problems = (_value_problem(key, value, keys) for key, value in entry.ops if value is not None)
    return next((text for text in problems if text), None)


def _entity_problem(entity: ClientQuotaEntity) -> str | None:
    if not entity.entries:
        return "Invalid empty client quota entity"
    for kind, name in entity.entries:
        if kind not in {"user", "client-id", "ip"}:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if "ip" not in entity.types:
        return None
    if len(entity.entries) > 1:
        return (
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    name = dict(entity.entries)["ip"]
    return (
        None if name is None or _resolves(name) else f"{name} is not a valid IP or resolvable host."
    )


def _resolves(name: str) -> bool:
    """Tell what ``InetAddress.getByName`` takes without asking anybody, and localhost."""
    if name == "localhost" or _SHORT_ADDRESS.fullmatch(name):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _value_problem(
    key: str, value: float, keys: Mapping[str, tuple[str, float] | None]
) -> str | None:
    if key not in keys:
        return f"Invalid configuration key {key}"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    bound = keys[key]
    if bound is None:
        return None
    kind, largest = bound
    if value > largest:
        return f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}."
    return f"{key} cannot be a fractional value." if math.fmod(value, 1.0) > 1e-6 else None


def _printed(entity: ClientQuotaEntity) -> str:
    entries = ", ".join(
        f"{kind}={'null' if name is None else name}" for kind, name in entity.entries
    )
    return f"ClientQuotaEntity(entries={{{entries}}})"


class Component(NamedTuple):
    """One component of a filter: match kind 0 exact, 1 default, 2 any."""

    entity_type: str
    match_type: int
    match: str | None


def describe(
    components: Sequence[Component], quotas: Quotas, *, strict: bool
) -> tuple[int, str | None, Quotas | None]:
    """Return code, message and entries of the answer to a describe."""
    problem = _filter_problem(components)
    if problem is not None:
        return (*problem, None)
    if strict and not components:
        return NONE, "", {}
    matching = {
        entity: values
        for entity, values in quotas.items()
        if (not strict or len(entity.entries) == len(components))
        and all(_matches(component, entity) for component in components)
    }
    return NONE, "", matching


def _matches(component: Component, entity: ClientQuotaEntity) -> bool:
    names = dict(entity.entries)
    if component.entity_type not in names:
        return False
    return component.match_type == 2 or names[component.entity_type] == component.match


def _filter_problem(components: Sequence[Component]) -> tuple[int, str] | None:
    seen: set[str] = set()
    for component in components:
        problem = _component_problem(component, seen)
        if problem is not None:
            return problem
        seen.add(component.entity_type)
    if "ip" in seen and len(seen) > 1:
        text = (
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
        return INVALID_REQUEST, text
    return None


def _component_problem(component: Component, seen: set[str]) -> tuple[int, str] | None:
    kind = component.entity_type
    if not kind:
        return INVALID_REQUEST, "Invalid empty entity type."
    if kind in seen:
        text = f"Entity type {kind} cannot appear more than once in the filter."
        return INVALID_REQUEST, text
    if kind not in {"user", "client-id", "ip"}:
        return UNSUPPORTED_VERSION, f"Unsupported entity type {kind}"
    problem = _match_problem(component)
    return None if problem is None else (INVALID_REQUEST, problem)


def _match_problem(component: Component) -> str | None:
    match component.match_type, component.match:
        case 0, None:
            return "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case 1, str():
            return "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
        case 2, str():
            return "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
        case 0 | 1 | 2, _:
            return None
        case unknown, _:
            return f"Unknown match type {unknown}"
