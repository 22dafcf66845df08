"""Terraform: ``kafka_quota`` of the Mongey/kafka provider, in a state file or ``show -json``.

A resource without ``entity_name`` is the default. Source: ``resource_kafka_quota.go``.
"""

from collections.abc import Iterator, Sequence

from app.client.imports.collected import Collected
from app.client.imports.tree import items, member, text
from app.client.nodes import Node

_TYPE = "kafka_quota"


def recognised(nodes: Sequence[Node]) -> bool:
    """Tell whether it is a state, as a file or as ``terraform show -json`` prints it."""
    return any(
        member(node, "terraform_version") is not None or member(node, "lineage") is not None
        for node in nodes
    )


def read(nodes: Sequence[Node], into: Collected) -> None:
    """Read the resources; those of other types are counted."""
    others = 0
    for node in nodes:
        for kind, attributes in _resources(node):
            if kind == _TYPE:
                _read_quota(attributes, into)
            else:
                others += 1
    if others:
        into.lose(1, f"{others} resources of other types have no quotas")


def _resources(node: Node) -> Iterator[tuple[str | None, Node]]:
    for resource in items(node, "resources"):
        for instance in items(resource, "instances"):
            attributes = member(instance, "attributes")
            if attributes is not None:
                yield text(resource, "type"), attributes
    root = member(node, "values", "root_module")
    if root is not None:
        yield from _of_module(root)


def _of_module(module: Node) -> Iterator[tuple[str | None, Node]]:
    for resource in items(module, "resources"):
        values = member(resource, "values")
        if values is not None:
            yield text(resource, "type"), values
    for child in items(module, "child_modules"):
        yield from _of_module(child)


def _read_quota(attributes: Node, into: Collected) -> None:
    kind = text(attributes, "entity_type") or ""
    if kind not in ("user", "client-id", "ip"):
        into.lose(attributes.line, f"{kind or 'no entity_type'}: Kafka has no such entity")
        return
    entity = {kind: text(attributes, "entity_name") or None}
    config = member(attributes, "config")
    for key, value in () if config is None else config.members:
        into.add(entity, key, value.text, value.line)
