"""Manifests of Strimzi: quotas of ``KafkaUser``, and the default user quotas of ``Kafka``.

A user who logs in with a certificate is ``CN=<name>`` to the broker; all others are the name.
Source: ``KafkaUserModel.getTlsUserName``, ``KafkaUserOperator`` and ``QuotasPluginKafka``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app.client.imports.collected import Collected
from app.client.imports.tree import items, member, text
from app.client.nodes import Node

_KEYS: Final[Mapping[str, str]] = {
    "producerByteRate": "producer_byte_rate",
    "consumerByteRate": "consumer_byte_rate",
    "requestPercentage": "request_percentage",
    "controllerMutationRate": "controller_mutation_rate",
}
_WITH_CERTIFICATE: Final = ("tls", "tls-external")


def recognised(nodes: Sequence[Node]) -> bool:
    """Tell whether there are manifests of Strimzi."""
    return any(text(node, "kind") in ("KafkaUser", "Kafka") for node in _manifests(nodes))


def _manifests(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        if (text(node, "kind") or "").endswith("List"):
            yield from items(node, "items")
        else:
            yield node


def read(nodes: Sequence[Node], into: Collected) -> None:
    """Read the manifests; those without quotas are noted."""
    for node in _manifests(nodes):
        kind, name = text(node, "kind"), text(node, "metadata", "name") or ""
        if kind == "KafkaUser":
            _read_user(node, name, into)
        elif kind == "Kafka":
            _read_kafka(node, name, into)
        else:
            into.lose(node.line, f"{kind} {name} has no quotas of clients")


def _read_user(node: Node, name: str, into: Collected) -> None:
    quotas = member(node, "spec", "quotas")
    if quotas is None:
        into.lose(node.line, f"KafkaUser {name} has no quotas")
        return
    certificate = text(node, "spec", "authentication", "type") in _WITH_CERTIFICATE
    _read_quotas({"user": f"CN={name}" if certificate else name}, quotas, into)


def _read_kafka(node: Node, name: str, into: Collected) -> None:
    quotas = member(node, "spec", "kafka", "quotas")
    if quotas is None or text(quotas, "type") != "kafka":
        into.lose(node.line, f"Kafka {name} has no default quotas of users")
        return
    _read_quotas({"user": None}, quotas, into)


def _read_quotas(entity: Mapping[str, str | None], quotas: Node, into: Collected) -> None:
    for field, value in quotas.members:
        if field in _KEYS:
            into.add(entity, _KEYS[field], value.text, value.line)
        elif field != "type":
            into.lose(value.line, f"{field} is no quota of clients")
