"""Terraform and OpenTofu: states, plans, ``show -json`` and configurations."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode

from app.client.imports.collection import Collection, NotReadError, is_template
from app.client.imports.manifests import Manifest, read_manifest
from app.client.imports.records import read_flat
from app.client.imports.trees import (
    EXPRESSION,
    NULL,
    add_values,
    items,
    member,
    name_at,
    text,
)
from app.documents.nodes import items_of, kind_of, line_of, members_of

_SHOW: Final = "terraform show -json"


class Resource(NamedTuple):
    """A resource with its attributes."""

    address: str
    kind: str
    attributes: Node


def is_terraform(nodes: Sequence[Node]) -> bool:
    """Tell whether it is a state, a plan, what ``show -json`` prints, or a configuration."""
    return any(
        any(member(node, mark) is not None for mark in _MARKS) or _each(member(node, "resource"))
        for node in nodes
    )


_MARKS: Final = ("terraform_version", "lineage", "planned_values", "format_version")


def read_terraform(nodes: Sequence[Node], into: Collection) -> None:
    """Read the quotas that the file says hold or are to hold; the rest is counted or named.

    Of a plan ``planned_values`` is read, and ``resource_changes`` where it is absent.
    """
    for node in nodes:
        if member(node, "modules") is not None and member(node, "resources") is None:
            into.lose(1, f"a state of version {text(node, 'version')} is not read; {_SHOW} has it")
            into.ignored.add(id(member(node, "modules")))
        unknown = _unknown_attributes(node)
        resources = list(_resources(node))
        for resource in resources:
            read_resource(_with_unknown(resource, unknown.get(resource.address)), into)
        _ignore_the_past(node, into)
        if any(map(_is_quota, resources)):
            _ignore(into, node, *_REPEATS)
            _ignore(into, member(node, "values"), "outputs")
            _ignore(into, member(node, "planned_values"), "outputs")


def _ignore_the_past(node: Node, into: Collection) -> None:
    """Leave out what a plan says twice, and name what it has of the past alone."""
    planned = {mark for resource in _planned(node) for mark in _marks_of(resource)}
    removed = {
        text(change, "address")
        for change in items(node, "resource_changes")
        if [str(action.value) for action in items(change, "change", "actions")] == ["delete"]
    }
    for resource in _of_values(member(node, "prior_state", "values")):
        if not _is_quota(resource) or planned & _marks_of(resource):
            continue
        if resource.address in removed or member(node, "planned_values") is None:
            into.count("quota that the plan removes", "quotas that the plan removes")
        else:
            line = line_of(resource.attributes)
            into.lose(line, f"{resource.address} is in prior_state, and not in planned_values")
    for stored in items(node, "resources"):
        for instance in filter(_is_deposed, items(stored, "instances")):
            into.count("resource to be removed", "resources to be removed")
            into.ignored.add(id(instance))
    _ignore(into, node, "prior_state", "resource_changes", "resource_drift", "configuration")


_REPEATS: Final = ("variables", "outputs", "output_changes", "checks")
"""What quotas of resources come from or go to: nothing of it is a quota by itself."""


def _ignore(into: Collection, node: Node | None, *fields: str) -> None:
    found = [member(node, field) for field in fields]
    into.ignored.update(id(below) for below in found if below is not None)


_IDENTIFYING: Final = ("entity_type", "entity_name", "user", "client_id", "client")


def _marks_of(resource: Resource) -> set[object]:
    """Return what tells a resource: its address, and what it limits."""
    names = tuple(text(resource.attributes, field) for field in _IDENTIFYING)
    return {resource.address, (resource.kind, names)}


def _resources(node: Node) -> Iterator[Resource]:
    yield from _of_state(node)
    yield from _of_values(member(node, "values"))
    yield from _planned(node)
    yield from _of_configuration(member(node, "resource"))


def _planned(node: Node) -> Iterator[Resource]:
    planned = member(node, "planned_values")
    if planned is not None:
        yield from _of_values(planned)
        return
    for change in items(node, "resource_changes"):
        after = member(change, "change", "after")
        if after is not None:
            address = text(change, "address") or text(change, "name") or ""
            yield Resource(address, text(change, "type") or "", after)


def _of_state(node: Node) -> Iterator[Resource]:
    for resource in items(node, "resources"):
        kind = text(resource, "type") or ""
        steps = (text(resource, "module"), kind, text(resource, "name"))
        address = ".".join(step for step in steps if step)
        for instance in items(resource, "instances"):
            index = text(instance, "index_key")
            attributes = member(instance, "attributes") or member(instance, "attributes_flat")
            if attributes is not None and not _is_deposed(instance):
                full = address if index is None else f"{address}[{index}]"
                yield Resource(full, kind, attributes)


def _is_deposed(instance: Node) -> bool:
    return member(instance, "deposed") is not None


def _of_values(values: Node | None) -> Iterator[Resource]:
    modules = [] if values is None else [member(values, "root_module")]
    while modules:
        module = modules.pop(0)
        for resource in items(module, "resources"):
            attributes = member(resource, "values")
            if attributes is not None:
                kind = text(resource, "type") or ""
                yield Resource(
                    text(resource, "address") or _address_of(kind, attributes), kind, attributes
                )
        modules[:0] = items(module, "child_modules")


def _address_of(kind: str, attributes: Node) -> str:
    names = [text(attributes, field) for field in _IDENTIFYING]
    return " ".join([kind, *(name for name in names if name)])


def _of_configuration(resources: Node | None) -> Iterator[Resource]:
    """Yield the resources of JSON as ``main.tf.json`` has it: each level may be a list."""
    for kinds in _each(resources):
        for kind, names in members_of(kinds):
            for name, bodies in [pair for named in _each(names) for pair in members_of(named)]:
                for attributes in _each(bodies):
                    yield Resource(f"{kind}.{name}", kind, with_name(attributes))


def _each(node: Node | None) -> Sequence[Node]:
    if isinstance(node, MappingNode):
        return [node]
    return [] if node is None else items_of(node)


def with_name(attributes: Node) -> Node:
    """Return attributes of a configuration; no ``entity_name`` is the default there, as null is."""
    if isinstance(attributes, MappingNode) and "entity_name" not in dict(members_of(attributes)):
        mark = attributes.start_mark
        pair = (ScalarNode("", "entity_name", mark), ScalarNode(NULL, "null", mark))
        attributes.value.append(pair)
    return attributes


def _unknown_attributes(node: Node) -> Mapping[str, Node]:
    """Return by address what a plan knows only after it was applied."""
    return {
        text(change, "address") or "": unknown
        for change in items(node, "resource_changes")
        if (unknown := member(change, "change", "after_unknown")) is not None
    }


def _with_unknown(resource: Resource, unknown: Node | None) -> Resource:
    """Mark attributes that are not known yet: absent, they would look like defaults."""
    if unknown is not None:
        _mark_unknown(resource.attributes, unknown)
    return resource


def _mark_unknown(own: Node, unknown: Node) -> None:
    for field, below in members_of(unknown):
        there = member(own, field)
        if isinstance(below, MappingNode) and there is not None:
            _mark_unknown(there, below)
        elif isinstance(own, MappingNode) and text(below) == "true":
            mark = ScalarNode(EXPRESSION, "${known after apply}", below.start_mark)
            key = ScalarNode("", field, below.start_mark)
            own.value = [pair for pair in own.value if pair[0].value != field] + [(key, mark)]


_QUOTA: Final = re.compile(r"(?i)(kafka|redpanda|confluent|client|msk|dms).*quota|quota.*kafka")


def _is_quota(resource: Resource) -> bool:
    return _QUOTA.search(resource.kind) is not None


def read_resource(resource: Resource, into: Collection) -> None:
    """Read one resource by its type; a quota of a type that is not in the table is lost by name."""
    other = _refuse if _is_quota(resource) else _count
    read = _READERS.get(re.sub(_HUAWEI, "", resource.kind), other)
    try:
        read(resource, into)
    except NotReadError as error:
        into.lose(line_of(resource.attributes), f"{resource.address}: {error}")
        into.ignored.add(id(resource.attributes))


def _refuse(_: Resource, _into: Collection) -> None:
    raise NotReadError("quotas of this type are not read")


def _count(_: Resource, into: Collection) -> None:
    into.count("resource of another type", "resources of other types")


_HUAWEI: Final = r"^(huaweicloud|flexibleengine|opentelekomcloud|g42cloud|hcso?)(?=_dms_kafka_)"
_SEVERAL: Final = ("count", "for_each")


def _refuse_several(attributes: Node) -> None:
    """Refuse a block of a configuration that stands for several resources."""
    for field in _SEVERAL:
        if member(attributes, field) is not None:
            raise NotReadError(f"it has {field}, so it may be several; {_SHOW} has them")


def _read_mongey(resource: Resource, into: Collection) -> None:
    """Read ``kafka_quota`` of the Mongey/kafka provider: an empty name is the default.

    Source: ``resource_kafka_quota.go``.
    """
    attributes = resource.attributes
    _refuse_several(attributes)
    kind = name_at(attributes, "entity_type")
    if kind not in ("user", "client-id", "ip"):
        raise NotReadError(f"entity_type is {kind}, which Kafka does not have")
    if "entity_name" not in dict(members_of(attributes)):
        raise NotReadError("it has no entity_name")
    entity = {kind: name_at(attributes, "entity_name") or None}
    config = member(attributes, "config")
    if not isinstance(config, MappingNode):
        raise NotReadError(f"its config is {_what(config)}")
    if not add_values(into, entity, config):
        raise NotReadError("its config is empty")


def _what(node: Node | None) -> str:
    if node is None:
        return "absent"
    return f"{node.value}" if isinstance(node, ScalarNode) else kind_of(node).value


def _read_flat(resource: Resource, into: Collection) -> None:
    _refuse_several(resource.attributes)
    read_flat(resource.attributes, into)


def _read_confluent(resource: Resource, _: Collection) -> None:
    """Name what a quota of Confluent Cloud limits; none of it is one of Kafka.

    Its principals are ids of accounts and pools there, and its limits count for the cluster.
    Source: ``resource_kafka_client_quota.go`` of Confluent's provider.
    """
    limits = [
        f"{field}={value.value}"
        for throughput in _blocks(resource.attributes, "throughput")
        for field, value in members_of(throughput)
        if isinstance(value, ScalarNode)
    ]
    principals = [
        str(item.value)
        for item in items(resource.attributes, "principals")
        if isinstance(item, ScalarNode)
    ]
    raise NotReadError(
        f"{', '.join(limits) or 'its limits'} of {', '.join(principals) or 'its principals'}: "
        "principals of Confluent Cloud are ids, not users as brokers see them, and its limits "
        "count for the cluster, those of Kafka for each broker"
    )


def _blocks(attributes: Node, field: str) -> Sequence[Node]:
    """Return the blocks of a name: JSON of a configuration has a single one as a mapping."""
    found = member(attributes, field)
    return [found] if isinstance(found, MappingNode) else items(attributes, field)


def _is_computed(node: Node) -> bool:
    return isinstance(node, ScalarNode) and (node.tag == EXPRESSION or is_template(node.value))


def _read_manifest(resource: Resource, into: Collection) -> None:
    """Read a manifest: ``object`` is what the provider read back of ``manifest``."""
    bodies = [member(resource.attributes, field) for field in ("object", "manifest")]
    values = [member(body, "value") or body for body in bodies if body is not None]
    manifests = [value for value in values if text(value, "kind") is not None]
    into.ignored.update(id(node) for node in manifests[1:])
    if any(_is_computed(value) for value in values):
        into.warn(
            line_of(resource.attributes),
            f"{resource.address}: its manifest is computed, so it may have quotas; {_SHOW} has it",
        )
    elif not manifests:
        _count(resource, into)
    for node in manifests[:1]:
        kind, name = text(node, "kind") or "", text(node, "metadata", "name") or ""
        read_manifest(Manifest(kind, name, node, {}), into)


_READERS: Final[Mapping[str, Callable[[Resource, Collection], None]]] = {
    "kafka_quota": _read_mongey,
    "aiven_kafka_quota": _read_flat,
    "_dms_kafka_user_client_quota": _read_flat,
    "confluent_kafka_client_quota": _read_confluent,
    "kubernetes_manifest": _read_manifest,
}
