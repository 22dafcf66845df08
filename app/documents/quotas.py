"""A document of quotas, read from YAML or JSON strictly; ``tables`` reads it from CSV."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.documents import API_VERSION
from app.documents.faults import Fault, Faults, UnreadableDocumentError
from app.documents.nodes import Kind, items_of, kind_of, line_of, members, members_of, parse
from app.domain.alterations import DesiredValue, read_decimal
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity, show_entity
from app.domain.errors import pointer_token
from app.domain.plans import DesiredQuota
from app.domain.quantities import read_value

_NODES_OF_A_QUOTA: Final = 40
"""So many at most, on average: two of them are the item and its entity, ten five values."""


@dataclass(slots=True)
class Lines:
    """Where an entity of a document stands; names and values by type and key."""

    item: int
    entity: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Document:
    """The entities of a document in its order, and their lines."""

    quotas: list[DesiredQuota] = field(default_factory=list)
    lines: list[Lines] = field(default_factory=list)

    def line_of(self, pointer: str) -> int | None:
        """Return the line of what a pointer names, such as ``/quotas/0/values/producer_byte_rate``.

        A pointer to what is not there has the line of its entity; null where it is in no quota.
        """
        name, index, *rest = [*pointer.split("/")[1:], "", ""][:4]
        if name != "quotas" or not index.isdecimal() or int(index) >= len(self.lines):
            return None
        lines = self.lines[int(index)]
        member, token = rest
        found = {"entity": lines.entity, "values": lines.values}.get(member, {})
        return found.get(token.replace("~1", "/").replace("~0", "~"), lines.item)


_ROOT: Final = frozenset(
    {"apiVersion", "quotas", "cluster_id", "as_of", "next_page_token", "total"}
)
_WHAT_IS_READ: Final = (
    "a document is YAML or JSON with quotas, or CSV whose first line names "
    "user, client-id or ip and quota keys"
)
_QUOTA: Final = frozenset({"entity", "entity_key", "values"})
_TYPES: Final = frozenset(kind.value for kind in ENTITY_TYPES)
_DIGITS: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def read_yaml(text: str, most: int | None = None) -> Document:
    """Read a document of YAML or JSON, or the JSON answer of ``GET /quotas``.

    Args:
        text: One document.
        most: So many entities are read at most; null: any number.

    Raises:
        UnreadableDocumentError: With every fault.
    """
    nodes = parse(text, None if most is None else _NODES_OF_A_QUOTA * max(most, 1))
    if len(nodes) != 1:
        many = f"there are {len(nodes)} documents; one is needed"
        sentence = many if nodes else f"this is empty: {_WHAT_IS_READ}"
        raise UnreadableDocumentError([Fault(1, sentence)])
    faults, document = Faults(), Document()
    before: dict[ClientQuotaEntity, int] = {}
    for index, item in enumerate(_items(nodes[0], faults)):
        _read_quota(item, f"/quotas/{index}", document, faults, before)
    faults.refuse_if_any()
    return document


def _items(root: Node, faults: Faults) -> list[Node]:
    if not isinstance(root, MappingNode):
        faults.add(
            line_of(root), f"this is {kind_of(root).value}, and no document: {_WHAT_IS_READ}"
        )
        return []
    found = dict(members(root, _ROOT, faults))
    version = found.get("apiVersion")
    if version is not None and (kind_of(version), version.value) != (Kind.TEXT, API_VERSION):
        detail = f"apiVersion is {API_VERSION}"
        faults.add(line_of(version), detail, "/apiVersion", "unknown-api-version")
    page = found.get("next_page_token")
    if page is not None and kind_of(page) is not Kind.NULL:
        faults.add(line_of(page), "this is one page of an answer; save all of it")
    quotas = found.get("quotas")
    if quotas is None:
        faults.add(line_of(root), f"quotas is missing: {_WHAT_IS_READ}")
        return []
    if not isinstance(quotas, SequenceNode):
        faults.add(line_of(quotas), "quotas is a list; write [] where there are none", "/quotas")
    return items_of(quotas)


def _read_quota(
    node: Node,
    pointer: str,
    document: Document,
    faults: Faults,
    before: dict[ClientQuotaEntity, int],
) -> None:
    found = dict(members(node, _QUOTA, faults, pointer))
    if isinstance(node, MappingNode):
        for name in sorted({"entity", "values"} - found.keys()):
            faults.add(line_of(node), f"{name} is missing", pointer)
    lines = Lines(line_of(node))
    names = read_names(found["entity"], pointer, lines, faults) if "entity" in found else {}
    entity = ClientQuotaEntity.of(names)
    if "entity" in found and isinstance(found["entity"], MappingNode):
        _check_entity(entity, found["entity"], pointer, faults, before)
    key = found.get("entity_key")
    if key is not None and key.value != entity.key:
        detail = "entity_key is that of another entity; leave it out"
        faults.add(line_of(key), detail, f"{pointer}/entity_key", "other-entity-key")
    values = dict(_values(found["values"], entity, pointer, faults)) if "values" in found else {}
    if "values" in found:
        lines.values = {key: line_of(value) for key, value in members_of(found["values"])}
    document.quotas.append(DesiredQuota(entity, values))
    document.lines.append(lines)


def read_names(node: Node, pointer: str, lines: Lines, faults: Faults) -> dict[str, str | None]:
    """Read the names of an entity by type; null is the default entity.

    Args:
        node: The mapping.
        pointer: Of what the entity belongs to.
        lines: Gets the line of each name.
        faults: Gets what is wrong.
    """
    names: dict[str, str | None] = {}
    for kind, name in members(node, _TYPES, faults, f"{pointer}/entity"):
        lines.entity[kind] = line_of(name)
        if kind_of(name) in (Kind.NULL, Kind.TEXT):
            names[kind] = None if kind_of(name) is Kind.NULL else name.value
        else:
            faults.add(line_of(name), _not_a_name(kind, name), f"{pointer}/entity/{kind}")
    return names


def _not_a_name(kind: str, node: Node) -> str:
    if not isinstance(node, ScalarNode):
        return f"{kind} is a text, or null for the default entity"
    if kind_of(node) is Kind.EMPTY:
        return f"{kind} has no name; write null for the default entity"
    return f'{kind} is a text: write it in quotes, "{node.value}"'


def _check_entity(
    entity: ClientQuotaEntity,
    node: MappingNode,
    pointer: str,
    faults: Faults,
    before: dict[ClientQuotaEntity, int],
) -> None:
    line = line_of(node)
    if not node.value:
        faults.add(line, "an entity has at least one type", f"{pointer}/entity")
    elif entity in before:
        faults.add(line, twice(entity, before[entity]), f"{pointer}/entity", "duplicate-entity")
    elif entity.entries:
        before[entity] = line


def twice(entity: ClientQuotaEntity, line: int) -> str:
    """Return the sentence about an entity that a document has twice."""
    return f"the entity {show_entity(entity.as_dict())} is there twice (before: line {line})"


def _values(
    node: Node, entity: ClientQuotaEntity, pointer: str, faults: Faults
) -> Iterator[tuple[str, DesiredValue | None]]:
    for key, value in members(node, None, faults, f"{pointer}/values"):
        try:
            yield key, read_quota_value(key, value)
        except ValueError as error:
            where = f"{pointer}/values/{pointer_token(key)}"
            faults.add(line_of(value), f"{entity} {error}", where, "unreadable-value")


def read_quota_value(key: str, node: Node) -> DesiredValue | None:
    """Read the value of a quota; null removes it.

    Raises:
        ValueError: It is none.
    """
    match kind_of(node):
        case Kind.NUMBER if _DIGITS.fullmatch(node.value):
            return read_decimal(node.value)
        case Kind.TEXT:
            return read_value(key, node.value)
        case Kind.NULL | Kind.EMPTY:
            message = f"{key} has no value; leave the key out, or write unset to remove it"
            raise ValueError(message)
    message = f"{key} is a number in plain digits, with a unit or without"
    raise ValueError(message)
