"""Ansible's playbooks and variables, and Julie's topologies."""

from collections.abc import Iterator, Sequence
from typing import Final

from yaml.nodes import MappingNode, Node, SequenceNode

from app.client.imports.collection import Collection, NotReadError
from app.client.imports.trees import (
    add_value,
    add_values,
    is_true,
    items,
    member,
    name_at,
    text,
)
from app.documents.nodes import items_of, kind_of, line_of, members_of
from app.domain.entities import DEFAULT

_MODULE: Final = "kafka_quotas"
_TYPES: Final = {"user": "user", "client": "client-id", "client-id": "client-id", "ip": "ip"}


def is_ansible(nodes: Sequence[Node]) -> bool:
    """Tell whether a task or a variable has the name of the module ``kafka_quotas``."""
    return any(True for _ in _modules(nodes))


def read_ansible(nodes: Sequence[Node], into: Collection) -> None:
    """Read the entries of each task.

    Source: ``kafka_quotas`` of StephenSorriaux/ansible-kafka-admin.
    """
    for module in _modules(nodes):
        entries = module if isinstance(module, SequenceNode) else member(module, "entries")
        if not isinstance(entries, SequenceNode):
            what = "absent" if entries is None else text(entries) or kind_of(entries).value
            into.lose(line_of(module), f"{_MODULE}: entries is {what}: not read")
            continue
        for entry in items_of(entries):
            try:
                _read_entry(entry, into)
            except NotReadError as error:
                into.lose(line_of(entry), f"an entry of {_MODULE}: {error}")
                into.ignored.add(id(entry))


def _modules(nodes: Sequence[Node]) -> Iterator[Node]:
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        below = members_of(node)
        yield from (value for key, value in below if key.rpartition(".")[2] == _MODULE)
        stack += reversed([*(value for _, value in below), *items_of(node)])


def _read_entry(entry: Node, into: Collection) -> None:
    quotas = member(entry, "quotas")
    if not isinstance(quotas, MappingNode):
        raise NotReadError("it has no quotas")
    if not add_values(into, _entity_of(entry), quotas):
        into.count("entity without values", "entities without values")


def _entity_of(entry: Node) -> dict[str, str | None]:
    """Return the entity: a mapping of names, or a list of components."""
    entity: dict[str, str | None] = {}
    named = member(entry, "entity")
    for field, _ in [] if named is None else members_of(named):
        if named is not None and (name := name_at(named, field)):
            entity[_TYPES.get(field, field)] = None if name == DEFAULT else name
    for component in items(entry, "entity"):
        kind = name_at(component, "entity_type") or ""
        name = name_at(component, "entity_name")
        is_default = is_true(component, "entity_default") or name == DEFAULT
        if name is None and not is_default:
            raise NotReadError(f"its {kind or 'component'} has no entity_name")
        entity[_TYPES.get(kind, kind)] = None if is_default else name
    return entity


def is_julie(nodes: Sequence[Node]) -> bool:
    """Tell whether there is a topology, or the quotas of one."""
    return any(
        isinstance(_quotas_of(node), SequenceNode)
        or (member(node, "context") is not None and member(node, "projects") is not None)
        for node in nodes
    )


def read_julie(nodes: Sequence[Node], into: Collection) -> None:
    """Read the quotas of a topology; they are of users alone, and none has the default.

    Its principals are the names of users as they are, ``User:`` included: so it sets them.
    Source: ``QuotasClientBindingsBuilder`` of Julie.
    """
    for node in nodes:
        quotas = _quotas_of(node)
        projects = len(items(node, "projects"))
        for _ in range(projects):
            into.count("project", "projects")
        for quota in [] if quotas is None else items_of(quotas):
            try:
                _read_of_principal(quota, into)
            except NotReadError as error:
                into.lose(line_of(quota), f"a quota of the topology: {error}")
                into.ignored.add(id(quota))


def _quotas_of(node: Node) -> Node | None:
    return member(node, "platform", "kafka", "quotas") or member(node, "kafka", "quotas")


def _read_of_principal(quota: Node, into: Collection) -> None:
    name = name_at(quota, "principal")
    if name is None:
        raise NotReadError("it has no principal")
    for field, value in members_of(quota):
        if field != "principal":
            add_value(into, {"user": name or None}, field, value)
