"""``rpk cluster quotas describe --format yaml`` (or json), which is what its ``import`` reads.

Its text ``<default>`` is the default entity: an entity of that name looks the same there. Source:
``parseEntityData`` of rpk.
"""

from collections.abc import Sequence

from app.client.entities import DEFAULT
from app.client.imports.collected import Collected
from app.client.imports.tree import items, member, text
from app.client.nodes import Kind, Node


def recognised(nodes: Sequence[Node]) -> bool:
    """Tell whether the entities of ``quotas`` are lists, as only rpk writes them."""
    entities = [member(quota, "entity") for node in nodes for quota in items(node, "quotas")]
    return any(entity is not None and entity.kind is Kind.LIST for entity in entities)


def read(nodes: Sequence[Node], into: Collected) -> None:
    """Read the quotas; entity types that Kafka does not have are noted."""
    for quota in [quota for node in nodes for quota in items(node, "quotas")]:
        entity: dict[str, str | None] = {}
        for part in items(quota, "entity"):
            name = text(part, "name")
            entity[text(part, "type") or ""] = None if name == DEFAULT else name
        if not entity or not entity.keys() <= {"user", "client-id", "ip"}:
            kinds = ", ".join(entity) or "no type"
            names = ", ".join(str(name) for name in entity.values())
            into.lose(quota.line, f"{kinds} {names}: Kafka has no such entity")
            continue
        for value in items(quota, "values"):
            written = text(value, "value") or text(value, "values") or ""
            into.add(entity, text(value, "key") or "", written, value.line)
