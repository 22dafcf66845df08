"""``import FILE``: a document from a file of kafka-configs, Strimzi, Terraform or rpk."""

import math
import re
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from yaml.nodes import Node, ScalarNode

from app.client.documents import (
    Kind,
    items_of,
    kind_of,
    line_of,
    members_of,
    parse,
    read_file,
)
from app.client.entities import show_value
from app.client.errors import DONE, REFUSED, UsageError
from app.client.output import API_VERSION, Context, document_lines
from app.domain.entities import DEFAULT, ENTITY_TYPES, ClientQuotaEntity, show_entity, visible
from app.domain.quota_keys import LONG_MAX, QUOTA_KEY_RULES, TWO_TO_63

Number = int | float


class Collected:
    """Entities with values, and sentences about the rest."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._values: dict[ClientQuotaEntity, dict[str, Number]] = {}
        self.lost: list[str] = []

    def lose(self, line: int, sentence: str) -> None:
        """Note what a document cannot hold."""
        self.lost.append(visible(f"{self._file}:{line}: {sentence}"))

    def add(self, entity: Mapping[str, str | None], key: str, text: str, line: int) -> None:
        """Take a value as the other tool wrote it; what no broker would take is noted as lost."""
        what = f"{show_entity(entity)} {key}={text}"
        value = number_of(text)
        if key not in QUOTA_KEY_RULES:
            self.lose(line, f"{what}: not a quota key of a broker")
        elif value is None:
            self.lose(line, f"{what}: not a number over 0")
        else:
            self._put(ClientQuotaEntity.of(entity), key, value, line)

    def _put(self, entity: ClientQuotaEntity, key: str, value: Number, line: int) -> None:
        before = self._values.setdefault(entity, {}).setdefault(key, value)
        if before != value:
            what = f"{show_entity(entity.as_dict())} {key}"
            self.lose(
                line, f"{what}={show_value(value)}: it was {show_value(before)} before, which stays"
            )

    def quotas(self) -> list[Mapping[str, Any]]:
        """Return what a document lists, in the order of answers."""
        return [
            {
                "entity": {
                    kind.value: entity.as_dict()[kind]
                    for kind in ENTITY_TYPES
                    if kind in entity.as_dict()
                },
                "values": dict(sorted(self._values[entity].items())),
            }
            for entity in sorted(self._values, key=ClientQuotaEntity.sort_key)
        ]


def number_of(text: str) -> Number | None:
    """Return a float64 as other tools write it (``1.0E7``), in our numbers; null: none over 0.

    2^63, which they write with the digits that a float prints, is 9223372036854775807 here.
    """
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value) or value <= 0 or "_" in text:
        return None
    if value == TWO_TO_63:
        return LONG_MAX
    return int(value) if value.is_integer() else value


def member(node: Node | None, *path: str) -> Node | None:
    """Return what a path of keys leads to, or null."""
    for key in path:
        if node is None:
            return None
        node = dict(reversed(members_of(node))).get(key)
    return None if node is None or kind_of(node) in (Kind.NULL, Kind.EMPTY) else node


def text(node: Node | None, *path: str) -> str | None:
    """Return the text of a scalar at a path, or null."""
    found = member(node, *path)
    return str(found.value) if isinstance(found, ScalarNode) else None


def items(node: Node | None, *path: str) -> Sequence[Node]:
    """Return the items of a list at a path; none where there is no list."""
    found = member(node, *path)
    return () if found is None else items_of(found)


_QUOTAS: Final = re.compile(r"(?:Quota configs|Configs) for (.+) are ?(.*)")
_CREDENTIALS: Final = re.compile(r"SCRAM credential configs for user-principal '(.*)' are .*")
_ENTITY: Final = re.compile(
    r"(?:(?P<any_user>(?:the )?default user-principal)|user-principal '(?P<user>.*?)')?"
    r"(?:, )?"
    r"(?:(?P<any_client>(?:the )?default client-id)|client-id '(?P<client>.*)')?"
    r"(?:(?P<any_ip>(?:the )?default ip)|ip '(?P<ip>.*)')?"
)
_VALUE: Final = re.compile(r"(?:^|,) ?([a-z_]+)=([^,= ]+)(?=,|$)")
_SECRET: Final = re.compile(r"SCRAM-SHA-[0-9]+=")


def is_kafka_configs(text: str) -> bool:
    """Return whether a text is output of ``kafka-configs --describe``, of any entity type."""
    return any(_QUOTAS.fullmatch(line) or _CREDENTIALS.fullmatch(line) for line in _lines(text))


def read_kafka_configs(text: str, into: Collected) -> None:
    """Read the lines; credentials are noted by the user's name alone.

    Lines, since 2.6 and before it::

        Quota configs for user-principal 'alice', client-id 'app' are producer_byte_rate=1000.0, …
        Quota configs for the default client-id are request_percentage=50.0
        SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096
        Configs for default user-principal are producer_byte_rate=1024,consumer_byte_rate=2048

    Source: ``ConfigCommand.describeQuotaConfigs`` and, of brokers with ZooKeeper,
    ``describeConfig``.
    """
    for number, line in enumerate(_lines(text), 1):
        quotas, credentials = _QUOTAS.fullmatch(line), _CREDENTIALS.fullmatch(line)
        if credentials is not None:
            into.lose(number, f"the SCRAM credentials of {credentials[1]} are no quota")
        elif quotas is not None:
            _read_quotas(quotas[1], quotas[2], number, into)
        elif line.strip():
            into.lose(number, "skipped: not a quota line")


def _lines(text: str) -> list[str]:
    return [line.rstrip("\r") for line in text.split("\n")]


def _read_quotas(entity_text: str, values_text: str, line: int, into: Collected) -> None:
    match = _ENTITY.fullmatch(entity_text)
    entity = {} if match is None else _entity(match)
    if not entity:
        into.lose(line, f"{entity_text} is no entity of quotas")
        return
    secret = _SECRET.search(values_text) is not None
    if secret:
        into.lose(line, f"the SCRAM credentials of {entity.get('user')} are no quota")
    for key, value in _VALUE.findall(values_text):
        # Beside credentials what is no quota may be a key of theirs: it is not even printed.
        if key in QUOTA_KEY_RULES or not secret:
            into.add(entity, key, value, line)


def _entity(match: re.Match[str]) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, default, name in (
        ("user", "any_user", "user"),
        ("client-id", "any_client", "client"),
        ("ip", "any_ip", "ip"),
    ):
        if match[default] is not None:
            entity[kind] = None
        elif match[name] is not None:
            entity[kind] = match[name]
    return entity


_KEYS: Final[Mapping[str, str]] = {
    "producerByteRate": "producer_byte_rate",
    "consumerByteRate": "consumer_byte_rate",
    "requestPercentage": "request_percentage",
    "controllerMutationRate": "controller_mutation_rate",
}
_WITH_CERTIFICATE: Final = ("tls", "tls-external")


def is_strimzi(nodes: Sequence[Node]) -> bool:
    """Tell whether there are manifests of Strimzi."""
    return any(text(node, "kind") in ("KafkaUser", "Kafka") for node in _manifests(nodes))


def _manifests(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        if (text(node, "kind") or "").endswith("List"):
            yield from items(node, "items")
        else:
            yield node


def read_strimzi(nodes: Sequence[Node], into: Collected) -> None:
    """Read quotas of ``KafkaUser``, and the default user quotas of ``Kafka``; note the rest.

    A user who logs in with a certificate is ``CN=<name>`` to the broker; all others are the name.
    Source: ``KafkaUserModel.getTlsUserName``, ``KafkaUserOperator`` and ``QuotasPluginKafka``.
    """
    for node in _manifests(nodes):
        kind, name = text(node, "kind"), text(node, "metadata", "name") or ""
        if kind == "KafkaUser":
            _read_user(node, name, into)
        elif kind == "Kafka":
            _read_kafka(node, name, into)
        else:
            into.lose(line_of(node), f"{kind} {name} has no quotas of clients")


def _read_user(node: Node, name: str, into: Collected) -> None:
    quotas = member(node, "spec", "quotas")
    if quotas is None:
        into.lose(line_of(node), f"KafkaUser {name} has no quotas")
        return
    certificate = text(node, "spec", "authentication", "type") in _WITH_CERTIFICATE
    _read_strimzi_quotas({"user": f"CN={name}" if certificate else name}, quotas, into)


def _read_kafka(node: Node, name: str, into: Collected) -> None:
    quotas = member(node, "spec", "kafka", "quotas")
    if quotas is None or text(quotas, "type") != "kafka":
        into.lose(line_of(node), f"Kafka {name} has no default quotas of users")
        return
    _read_strimzi_quotas({"user": None}, quotas, into)


def _read_strimzi_quotas(entity: Mapping[str, str | None], quotas: Node, into: Collected) -> None:
    for field, value in members_of(quotas):
        if field in _KEYS:
            into.add(entity, _KEYS[field], text(value) or "", line_of(value))
        elif field != "type":
            into.lose(line_of(value), f"{field} is no quota of clients")


_TYPE = "kafka_quota"


def is_terraform(nodes: Sequence[Node]) -> bool:
    """Tell whether it is a state, as a file or as ``terraform show -json`` prints it."""
    return any(
        member(node, "terraform_version") is not None or member(node, "lineage") is not None
        for node in nodes
    )


def read_terraform(nodes: Sequence[Node], into: Collected) -> None:
    """Read ``kafka_quota`` of the Mongey/kafka provider; count the other resources.

    A resource without ``entity_name`` is the default. Source: ``resource_kafka_quota.go``.
    """
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
        into.lose(line_of(attributes), f"{kind or 'no entity_type'}: Kafka has no such entity")
        return
    entity = {kind: text(attributes, "entity_name") or None}
    config = member(attributes, "config")
    for key, value in () if config is None else members_of(config):
        into.add(entity, key, text(value) or "", line_of(value))


def is_rpk(nodes: Sequence[Node]) -> bool:
    """Tell whether the entities of ``quotas`` are lists, as only rpk writes them."""
    entities = [member(quota, "entity") for node in nodes for quota in items(node, "quotas")]
    return any(entity is not None and kind_of(entity) is Kind.LIST for entity in entities)


def read_rpk(nodes: Sequence[Node], into: Collected) -> None:
    """Read ``rpk cluster quotas describe``; entity types that Kafka does not have are noted.

    Its text ``<default>`` is the default entity: an entity of that name looks the same there.
    Source: ``parseEntityData`` of rpk.
    """
    for quota in [quota for node in nodes for quota in items(node, "quotas")]:
        entity: dict[str, str | None] = {}
        for component in items(quota, "entity"):
            name = text(component, "name")
            entity[text(component, "type") or ""] = None if name == DEFAULT else name
        if not entity or not entity.keys() <= {"user", "client-id", "ip"}:
            kinds = ", ".join(entity) or "no type"
            names = ", ".join(str(name) for name in entity.values())
            into.lose(line_of(quota), f"{kinds} {names}: Kafka has no such entity")
            continue
        for value in items(quota, "values"):
            written = text(value, "value") or text(value, "values") or ""
            into.add(entity, text(value, "key") or "", written, line_of(value))


FORMATS: Final = ("kafka-configs", "rpk", "strimzi", "terraform")
_TREES: Final = {
    "rpk": (is_rpk, read_rpk),
    "strimzi": (is_strimzi, read_strimzi),
    "terraform": (is_terraform, read_terraform),
}


def add_import_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="kafka-configs --describe, rpk cluster quotas, KafkaUser manifests or a Terraform "
        "state; - reads stdin",
    )
    parser.add_argument(
        "--from", dest="source", choices=FORMATS, help="its format (default: as it looks)"
    )
    parser.add_argument(
        "--complete", action="store_true", help="exit code 1 where something is not carried over"
    )


def run_import(context: Context) -> int:
    """Write the document to standard output, and what was lost to standard error."""
    context.refuse_output("csv")
    collected = read_foreign(context.options.file, context.option("source"))
    quotas = collected.quotas()
    if context.output == "json":
        context.print_json({"apiVersion": API_VERSION, "quotas": quotas})
    else:
        context.print(document_lines(quotas))
    if collected.lost:
        context.note(f"Not carried over ({len(collected.lost)}):")
    for sentence in collected.lost:
        context.note(f"  {sentence}")
    return REFUSED if collected.lost and context.option("complete") else DONE


def read_foreign(file: str, source: str | None) -> Collected:
    """Read a file of another tool.

    Args:
        file: Its name; ``-`` is standard input.
        source: The tool; null: the one whose shape the file has.
    """
    content, collected = read_file(file), Collected(file)
    if source == "kafka-configs" or (source is None and is_kafka_configs(content)):
        read_kafka_configs(content, collected)
        return collected
    nodes = parse(file, content)
    for name, (recognised, read) in _TREES.items():
        if source == name or (source is None and recognised(nodes)):
            read(nodes, collected)
            return collected
    raise UsageError(f"{file} looks like none of {', '.join(FORMATS)}; name one with --from.")
