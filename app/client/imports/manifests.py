"""Manifests with a ``kind``: of Strimzi, Jikkou, Aiven's operator and ns4kafka, mixed or not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from yaml.nodes import Node

from app.client.imports.collection import Collection, NotReadError, quota_key
from app.client.imports.records import read_flat
from app.client.imports.strimzi import read_kafka, read_kafka_user
from app.client.imports.trees import add_value, add_values, is_true, items, member, name_at, text
from app.documents.nodes import line_of, members_of


class Manifest(NamedTuple):
    """A resource.

    Attributes:
        kind: Also of an item of a list that has the kind alone.
        name: Empty where it has none.
        users: Of the file's namespaces that have a user of Kafka, by their names.
    """

    kind: str
    name: str
    node: Node
    users: Mapping[str, Node]

    def __str__(self) -> str:
        """Return kind and name."""
        return f"{self.kind} {self.name}".rstrip()


_MARKS: Final = ("apiVersion", "metadata", "spec", "items")


def is_manifests(nodes: Sequence[Node]) -> bool:
    """Tell whether there are manifests, of whatever kind."""
    return any(
        text(node, "kind") is not None and any(member(node, mark) is not None for mark in _MARKS)
        for node in nodes
    )


def has_kind(*kinds: str) -> Callable[[Sequence[Node]], bool]:
    """Return what tells whether there are manifests of some kinds, or of none at all."""

    def recognise(nodes: Sequence[Node]) -> bool:
        found = {kind for kind, _ in _manifests(nodes)}
        return is_manifests(nodes) and (not found or not found.isdisjoint(kinds))

    return recognise


def read_manifests(nodes: Sequence[Node], into: Collection) -> None:
    """Read the quotas of each manifest; what has none is counted."""
    pairs = list(_manifests(nodes))
    users = {
        text(node, "metadata", "name") or "": node
        for kind, node in pairs
        if kind == "Namespace" and member(node, "spec", "kafkaUser") is not None
    }
    for kind, node in pairs:
        read_manifest(Manifest(kind, text(node, "metadata", "name") or "", node, users), into)


def read_manifest(manifest: Manifest, into: Collection) -> None:
    """Read one manifest."""
    reader = _READERS.get(manifest.kind, _read_other)
    try:
        reader(manifest, into)
    except NotReadError as error:
        into.lose(line_of(manifest.node), f"{manifest}: {error}")
        into.ignored.add(id(manifest.node))


def _manifests(nodes: Sequence[Node]) -> Iterator[tuple[str, Node]]:
    for node in nodes:
        kind = text(node, "kind") or ""
        if kind.endswith("List") and "items" in dict(members_of(node)):
            for item in items(node, "items"):
                yield text(item, "kind") or kind.removesuffix("List"), item
        else:
            yield kind, node


def _read_other(manifest: Manifest, into: Collection) -> None:
    if "Quota" in manifest.kind:
        raise NotReadError("quotas of this kind are not read")
    noun = manifest.kind or "document of another kind"
    into.count(noun, f"{noun}s")


def _read_kafka_user(manifest: Manifest, into: Collection) -> None:
    read_kafka_user(manifest.node, manifest.name, into)


def _read_kafka(manifest: Manifest, into: Collection) -> None:
    read_kafka(manifest.node, manifest.name, into)


_NAMED: Final = "named"
_JIKKOU: Final[Mapping[str, Mapping[str, str | None]]] = {
    "USERS_DEFAULT": {"user": None},
    "USER": {"user": _NAMED},
    "USER_CLIENT": {"user": _NAMED, "clientId": _NAMED},
    "USER_ALL_CLIENTS": {"user": _NAMED, "clientId": None},
    "CLIENT": {"clientId": _NAMED},
    "CLIENTS_DEFAULT": {"clientId": None},
}
"""By the type of a ``KafkaClientQuota``: which names it takes from its entity, null: the default.

Source: ``KafkaClientQuotaType`` of Jikkou.
"""


def _read_jikkou(manifest: Manifest, into: Collection) -> None:
    node = manifest.node
    if is_true(node, "metadata", "annotations", "jikkou.io/delete"):
        into.count(f"{manifest.kind} that is to be removed", f"{manifest.kind}s to be removed")
        into.ignored.add(id(node))
        return
    kind = text(node, "spec", "type")
    slots = _JIKKOU.get(kind or "")
    if slots is None:
        raise NotReadError(f"type {kind} is none of {', '.join(_JIKKOU)}")
    entity: dict[str, str | None] = {}
    for field in ("user", "clientId"):
        name = name_at(node, "spec", "entity", field)
        if slots.get(field) is not None and not name:
            raise NotReadError(f"its type is {kind}, and it has no {field}")
        if field in slots:
            entity[_TYPES[field]] = name if slots[field] else None
        if name and slots.get(field) is None:
            into.warn(line_of(node), f"{manifest}: type {kind} takes no {field}, so {name} is not")
    configs = member(node, "spec", "configs")
    if configs is None or not add_values(into, entity, configs):
        into.count(f"{manifest.kind} without values", f"{manifest.kind}s without values")


_TYPES: Final = {"user": "user", "clientId": "client-id"}


def _read_aiven(manifest: Manifest, into: Collection) -> None:
    spec = member(manifest.node, "spec")
    if spec is None:
        raise NotReadError("it has no spec")
    read_flat(spec, into)


_OF_USERS: Final = "user/"


def _read_resource_quota(manifest: Manifest, into: Collection) -> None:
    """Read a quota of ns4kafka, which is that of its namespace's user.

    Kubernetes has a kind of this name, too. Source: ``ResourceQuota``, ``Namespace`` and
    ``UserAsyncExecutor`` of ns4kafka.
    """
    spec = member(manifest.node, "spec")
    values = [] if spec is None else members_of(spec)
    of_users = [pair for pair in values if pair[0].startswith(_OF_USERS) or quota_key(pair[0])]
    if not of_users:
        into.count(f"{manifest.kind} without rates of users", f"{manifest.kind}s without rates")
        return
    namespace = text(manifest.node, "metadata", "namespace") or ""
    if namespace not in manifest.users:
        raise NotReadError(
            f"{', '.join(field for field, _ in of_users)}: the user is kafkaUser of the Namespace "
            f"{namespace}, which this file does not have"
        )
    user = name_at(manifest.users[namespace], "spec", "kafkaUser")
    for field, value in of_users:
        add_value(into, {"user": user}, field.removeprefix(_OF_USERS), value)


_READERS: Final[Mapping[str, Callable[[Manifest, Collection], None]]] = {
    "KafkaUser": _read_kafka_user,
    "Kafka": _read_kafka,
    "KafkaClientQuota": _read_jikkou,
    "KafkaQuota": _read_aiven,
    "ResourceQuota": _read_resource_quota,
}
