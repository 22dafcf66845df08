"""Quotas as the proposal prints them. Source: KIP-546, ``ClientQuotasCommand``, "Output"."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.client.entities import Entity, show_entity, visible
from app.client.values import show_value


def describe_lines(quotas: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a block for each entity: the entity, then its values by key; a blank line between."""
    for at, quota in enumerate(quotas):
        if at:
            yield ""
        yield show_entity(quota["entity"])
        for key, value in sorted(quota["values"].items()):
            yield f"{visible(key)}={show_value(value)}"


def resolve_lines(
    quotas: Mapping[str, Mapping[str, Any]], *, show_overridden: bool = False
) -> Iterator[str]:
    """Yield ``key=value {source}`` for each key that is limited; what it overrides begins with *.

    A key without a line is unlimited.
    """
    for key in sorted(quotas):
        quota = quotas[key]
        if quota["source"] is not None:
            yield _sourced(key, quota["value"], quota["source"]["entity"])
        if show_overridden:
            yield from _overridden(key, quota["overridden"])


def _overridden(key: str, overridden: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in overridden:
        yield f"*{_sourced(key, one['value'], one['entity'])}"


def _sourced(key: str, value: Any, entity: Entity) -> str:
    return f"{visible(key)}={show_value(value)} {show_entity(entity)}"
