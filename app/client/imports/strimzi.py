"""Resources of Strimzi: users, and the quotas plugin of a cluster."""

from collections.abc import Mapping
from typing import Final

from yaml.nodes import Node

from app.client.imports.collection import Collection, NotReadError, quota_key
from app.client.imports.trees import add_value, add_values, member, name_at, text
from app.documents.nodes import line_of, members_of

_WITH_CERTIFICATE: Final = ("tls", "tls-external")
_CALLBACK: Final = "client.quota.callback"


def read_kafka_user(node: Node, name: str, into: Collection) -> None:
    """Read the quotas of a ``KafkaUser``.

    A user who logs in with a certificate is ``CN=<name>`` to the broker; all others are the name.
    Source: ``KafkaUserModel.getTlsUserName`` and ``KafkaUserOperator``.
    """
    quotas = member(node, "spec", "quotas")
    certificate = text(node, "spec", "authentication", "type") in _WITH_CERTIFICATE
    if quotas is not None:
        name_at(node, "metadata", "name")
        is_any = add_values(into, {"user": f"CN={name}" if certificate else name}, quotas)
    if quotas is None or not is_any:
        into.count("KafkaUser", "KafkaUsers")


def read_kafka(node: Node, name: str, into: Collection) -> None:
    """Read the default user quotas of a ``Kafka``; the limits of a plugin are others.

    Source: ``QuotasPluginKafka`` and ``QuotasPluginStrimzi``.
    """
    callback = _read_callback(node, name, into)
    quotas = member(node, "spec", "kafka", "quotas")
    if quotas is None:
        if not callback:
            into.count("Kafka", "Kafkas")
        return
    kind = text(quotas, "type")
    if kind == "kafka":
        values = [(field, value) for field, value in members_of(quotas) if field != "type"]
        for field, value in values:
            add_value(into, {"user": None}, field, value)
    elif kind == "strimzi":
        _lose_limits(members_of(quotas), f"Kafka {name}", into)
        _warn(node, name, into)
    else:
        raise NotReadError(f"quotas of type {kind} are not read")


def _read_callback(node: Node, name: str, into: Collection) -> bool:
    config = member(node, "spec", "kafka", "config")
    members = [] if config is None else members_of(config)
    settings = {field: value for field, value in members if field.startswith(_CALLBACK)}
    if settings:
        limits = _STATIC.items()
        static = [(key, settings[field]) for field, key in limits if field in settings]
        _lose_limits(static, f"Kafka {name}", into)
        _warn(node, name, into)
    return bool(settings)


_STATIC: Final[Mapping[str, str]] = {
    f"{_CALLBACK}.static.produce": "producer_byte_rate",
    f"{_CALLBACK}.static.fetch": "consumer_byte_rate",
    f"{_CALLBACK}.static.request": "request_percentage",
}


def _lose_limits(members: list[tuple[str, Node]], what: str, into: Collection) -> None:
    for field, value in members:
        if quota_key(field):
            into.read.add(id(value))
            limit = f"{what}: {field}={value.value}"
            into.lose(line_of(value), f"{limit} is a limit of its quotas plugin, no client quota")


def _warn(node: Node, name: str, into: Collection) -> None:
    into.warn(
        line_of(node),
        f"Kafka {name} has a quotas plugin (client.quota.callback.class): its limits are no "
        "client quotas, and client quotas that are stored may not apply there",
    )
