"""Which reader a file of another tool gets: the one that is named, or the one it looks like."""

import codecs
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from yaml.nodes import Node

from app.client.documents import read_bytes
from app.client.errors import UsageError
from app.client.imports.collection import Collection
from app.client.imports.hcl import is_hcl, read_hcl
from app.client.imports.kafka_configs import is_kafka_configs, read_kafka_configs
from app.client.imports.manifests import has_kind, is_manifests, read_manifests
from app.client.imports.playbooks import is_ansible, is_julie, read_ansible, read_julie
from app.client.imports.records import (
    is_document,
    is_flat,
    is_kafka_ui,
    is_rpk,
    read_records,
    read_table,
)
from app.client.imports.rpk import is_rpk_text, read_rpk_text
from app.client.imports.terraform import is_terraform, read_terraform
from app.client.imports.trees import lose_unread, read_trees, text
from app.documents.nodes import line_of
from app.documents.tables import is_csv
from app.domain.entities import visible


class TextFormat(NamedTuple):
    """A format of lines."""

    name: str
    is_such: Callable[[str], bool]
    read: Callable[[str, Collection], None]


class TreeFormat(NamedTuple):
    """A format of YAML and JSON."""

    name: str
    is_such: Callable[[Sequence[Node]], bool]
    read: Callable[[Sequence[Node], Collection], None]


_TEXTS: Final = (
    TextFormat("terraform", is_hcl, read_hcl),
    TextFormat("rpk", is_rpk_text, read_rpk_text),
    TextFormat("kafka-configs", is_kafka_configs, read_kafka_configs),
    TextFormat("document", is_csv, read_table),
)
_TREES: Final = (
    TreeFormat("strimzi", has_kind("KafkaUser", "Kafka"), read_manifests),
    TreeFormat("jikkou", has_kind("KafkaClientQuota", "KafkaQuota"), read_manifests),
    TreeFormat("ns4kafka", has_kind("ResourceQuota"), read_manifests),
    TreeFormat("aiven", has_kind("KafkaQuota"), read_manifests),
    TreeFormat("strimzi", is_manifests, read_manifests),
    TreeFormat("terraform", is_terraform, read_terraform),
    TreeFormat("rpk", is_rpk, read_records),
    TreeFormat("kafka-ui", is_kafka_ui, read_records),
    TreeFormat("aiven", is_flat, read_records),
    TreeFormat("document", is_document, read_records),
    TreeFormat("ansible", is_ansible, read_ansible),
    TreeFormat("julie", is_julie, read_julie),
)
"""In the order in which a file is looked at; of mixed manifests each reads every kind."""

FORMATS: Final = tuple(sorted({row.name for row in (*_TEXTS, *_TREES)}))
_ALL: Final = ", ".join(FORMATS)


def read_foreign(file: str, source: str | None) -> Collection:
    """Read a file of another tool; an empty one has no quotas.

    Args:
        file: Its name; ``-`` is standard input.
        source: The tool; null: the one whose shape the file has.

    Raises:
        UsageError: It cannot be read, or is of no tool, or not of the one that is named.
    """
    content = _decode(file, read_bytes(file))
    collection = Collection(file)
    for row in _TEXTS:
        if source in (None, row.name) and row.is_such(content):
            row.read(content, collection)
            return collection
    is_text = source in {row.name for row in _TEXTS} - {row.name for row in _TREES}
    if is_text and content.strip():
        raise UsageError(f"{visible(file)} does not look like {source}.")
    nodes = _trees(file, content)
    for tree in _TREES:
        if nodes and source in (None, tree.name) and tree.is_such(nodes):
            tree.read(nodes, collection)
            lose_unread(nodes, collection)
            _lose_later_pages(nodes, collection)
            return collection
    if nodes:
        likeness = f"does not look like {source}" if source else f"looks like none of {_ALL}"
        raise UsageError(_advice_for(content, f"{visible(file)} {likeness}."))
    return collection


def _trees(file: str, content: str) -> list[Node]:
    try:
        return [node for node in read_trees(file, content) if node.value]
    except UsageError as error:
        raise UsageError(_advice_for(content, str(error))) from error


_ADVICE: Final = (
    (
        r"^\s*[~+-]? ?(?:resource \"|\"?[\w-]+\"?\s+= .* -> )|^Terraform (?:will|used) ",
        "Of a plan of Terraform, terraform show -json PLAN is read.",
    ),
    (
        r"\bkafka-configs\b.*\s--\w|\s--add-config\b",
        (
            "Of kafka-configs, the output of --describe is read, and no commands: "
            "kafka-client-quotas --alter takes the options of those."
        ),
    ),
    (
        r"\{\{",
        "Fill templates in first: helm template … | kafka-client-quotas import -",
    ),
    (
        r"^\{(?:user|client-id|ip)=.*\}$",
        "Of kafka-client-quotas --describe, --output yaml is read.",
    ),
    (
        r"^CLIENT-ID +USER +",
        "Of avn service quota list, --json is read.",
    ),
)
"""What people take for a file of a tool, and what they do instead."""


def _advice_for(content: str, sentence: str) -> str:
    head = content[:_LONGEST_HEAD]
    found = (advice for shape, advice in _ADVICE if re.search(shape, head, re.MULTILINE))
    return " ".join([sentence, *found][:2])


_LONGEST_HEAD: Final = 100_000


_NEXT: Final = (("next_page_token",), ("metadata", "continue"), ("metadata", "next"))


def _lose_later_pages(nodes: Sequence[Node], into: Collection) -> None:
    for node in nodes:
        if any(text(node, *path) for path in _NEXT):
            into.lose(line_of(node), "this is one page of an answer: the others are not in it")


_NULS_OF_UTF_16: Final = 4
"""Of so many characters more than one is NUL where UTF-16 is read as UTF-8; a name may hold one."""

_UTF_16: Final = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def _decode(file: str, content: bytes) -> str:
    """Return the text: UTF-8, or UTF-16 that begins with its mark, as PowerShell writes it."""
    encoding = _UTF_16.get(content[:2], "utf-8-sig")
    try:
        decoded = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(_advice(file, f":{line}: this is not UTF-8", "LATIN1")) from error
    if decoded.count("\0") * _NULS_OF_UTF_16 > len(decoded):
        kind = "UTF-16LE" if content[1:2] == b"\0" else "UTF-16BE"
        raise UsageError(_advice(file, " looks like UTF-16 without a mark", kind))
    return decoded


def _advice(file: str, what: str, encoding: str) -> str:
    name = visible(file)
    return f"{name}{what}; iconv -f {encoding} -t UTF-8 {name} makes UTF-8 of it."
