"""What a broker answers to a filter, and which filters it refuses.

Source: ``ClientQuotasImage`` of Kafka 4.3.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_broker_quotas import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION, Quotas


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
