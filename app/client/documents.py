"""Files of quotas and of identities, read strictly: each fault is reported with its line.

Besides the document of ``export`` the answer of ``--describe --output json`` is read. YAML and JSON
become trees in which each node has its line; ``imports`` reads them, too.
"""

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from app.client.entities import Number, exact, read_value
from app.client.errors import UsageError
from app.client.output import flow
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity, show_entity, visible

_MAX_LINES: Final = 100


class Kind(Enum):
    """What a node is. ``EMPTY`` is nothing at all where YAML means null by it."""

    MAPPING = "a mapping"
    LIST = "a list"
    TEXT = "a text"
    NUMBER = "a number"
    NULL = "null"
    EMPTY = "nothing"
    OTHER = "true, false or a date"


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its line, counted from 1.

    Attributes:
        line: Where it begins.
        kind: What it is.
        text: Of a scalar, as written, without quotes and escapes.
        members: Of a mapping, as written: a key may come twice.
        items: Of a list.
    """

    line: int
    kind: Kind
    text: str = ""
    members: tuple[tuple[str, "Node"], ...] = ()
    items: tuple["Node", ...] = ()


class Diagnostics:
    """Collects what is wrong with a file, so that all of it is reported at once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._faults: list[tuple[int, str]] = []

    def add(self, line: int, sentence: str) -> None:
        """Note a fault."""
        self._faults.append((line, sentence))

    def refuse_if_any(self) -> None:
        """Tell them, by line."""
        if not self._faults:
            return
        faults = sorted(self._faults)
        lines = [f"{self.file}:{line}: {visible(what)}" for line, what in faults[:_MAX_LINES]]
        if len(faults) > _MAX_LINES:
            lines.append(f"and {len(faults) - _MAX_LINES} more")
        raise UsageError("\n".join(lines))

    def members(self, node: Node, allowed: frozenset[str] | None) -> Iterator[tuple[str, Node]]:
        """Yield the members of a mapping, each key once.

        Args:
            node: What should be a mapping.
            allowed: The keys it may have; null: any.
        """
        if node.kind is not Kind.MAPPING:
            self.add(node.line, f"this is {node.kind.value}, not a mapping")
            return
        seen: dict[str, int] = {}
        for key, member in node.members:
            if key in seen:
                self.add(member.line, f"{key} is there twice (before: line {seen[key]})")
            elif allowed is not None and key not in allowed:
                self.add(
                    member.line, f"{key} is unknown here; allowed: {', '.join(sorted(allowed))}"
                )
            else:
                yield key, member
            seen.setdefault(key, member.line)


def read_file(file: str) -> str:
    """Return the text of a file, or of standard input for ``-``."""
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(f"{visible(file)} cannot be read: {error}.") from error


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one where PyYAML was built with it; both resolve alike."""

_TAG: Final = "tag:yaml.org,2002:"
_NULLS: Final = ("null", "Null", "NULL", "~")
_KINDS: Final = {"str": Kind.TEXT, "int": Kind.NUMBER, "float": Kind.NUMBER}


_PAIR: Final = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)", re.IGNORECASE)
"""An escape; JSON writes a character beyond 16 bits as two, which YAML does not know."""

_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def parse(file: str, text: str) -> list[Node]:
    """Return the documents of YAML, or of JSON, which is YAML too; empty ones are left out."""
    faults = Diagnostics(file)
    if text.lstrip()[:1] in ("{", "["):
        text = _PAIR.sub(_join_pair, text)
    reader = _YamlReader(faults)
    try:
        roots = list(yaml.compose_all(text, Loader=_LOADER))
        nodes = [reader.node(root) for root in roots if root is not None]
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise UsageError(f"{file}:{line}: this is not YAML or JSON: {error.problem}.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{file}: this is not YAML or JSON: {error}.") from error
    faults.refuse_if_any()
    return nodes


def _join_pair(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return escape[0]
    code = 0x10000 + ((int(escape[1], 16) & 0x3FF) << 10) + (int(escape[2], 16) & 0x3FF)
    return f"\\U{code:08X}"


class _YamlReader:
    def __init__(self, faults: Diagnostics) -> None:
        self._faults = faults
        self._seen: set[int] = set()

    def node(self, node: Any) -> Node:
        line = node.start_mark.line + 1
        if id(node) in self._seen:
            self._faults.add(line, "anchors and aliases are not read here; write it out")
            return Node(line, Kind.OTHER)
        self._seen.add(id(node))
        if isinstance(node, MappingNode):
            return Node(line, Kind.MAPPING, members=tuple(self._members(node)))
        if isinstance(node, SequenceNode):
            return Node(line, Kind.LIST, items=tuple([self.node(item) for item in node.value]))
        return Node(line, _kind(node), str(node.value))

    def _members(self, node: MappingNode) -> list[tuple[str, Node]]:
        members = []
        for key, value in node.value:
            if isinstance(key, ScalarNode):
                members.append((str(key.value), self.node(value)))
            else:
                self._faults.add(key.start_mark.line + 1, "a key is a text")
        return members


def _kind(node: ScalarNode) -> Kind:
    if not node.style and _PLAIN_NUMBER.fullmatch(node.value):
        return Kind.NUMBER  # also 1e3, which is a text to YAML 1.1
    tag = node.tag.removeprefix(_TAG)
    if tag == "null":
        return Kind.NULL if node.value in _NULLS else Kind.EMPTY
    return _KINDS.get(tag, Kind.OTHER)


Identity = dict[str, str]

_TYPES: Final = frozenset(kind.value for kind in ENTITY_TYPES)

_WHAT_IS_READ: Final = "write a list of identities, or CSV with the heading user,client-id or ip"


def read_identities(file: str) -> list[Identity]:
    """Read the identities of a file, in order."""
    text = read_file(file)
    # Of all lines alike the blanks before a cell are skipped; those within quotes count.
    heading = [cell.lstrip() for cell in text.partition("\n")[0].rstrip("\r").split(",")]
    faults = Diagnostics(file)
    if not text.strip():
        faults.add(1, f"the file is empty; {_WHAT_IS_READ}")
    if _TYPES.issuperset(heading):
        identities = list(_of_csv(text, heading, faults))
    else:
        identities = list(_of_nodes(parse(file, text), faults))
    faults.refuse_if_any()
    return identities


def _of_csv(text: str, heading: list[str], faults: Diagnostics) -> Iterator[Identity]:
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    next(reader)
    for row in reader:
        if not row:
            continue
        if len(row) != len(heading):
            faults.add(reader.line_num, f"{len(row)} cells, and the heading has {len(heading)}")
            continue
        identity = {kind: cell for kind, cell in zip(heading, row, strict=True) if cell}
        _check(identity, reader.line_num, faults)
        yield identity


def _of_nodes(nodes: list[Node], faults: Diagnostics) -> Iterator[Identity]:
    for root in nodes:
        if root.kind is not Kind.LIST:
            faults.add(root.line, _WHAT_IS_READ)
        for item in root.items:
            identity: Identity = {}
            for kind, name in faults.members(item, _TYPES):
                if name.kind is Kind.TEXT:
                    identity[kind] = name.text
                else:
                    faults.add(name.line, f"{kind} is a text; write it in quotes")
            _check(identity, item.line, faults)
            yield identity


def _check(identity: Mapping[str, str], line: int, faults: Diagnostics) -> None:
    if not identity.keys() & {"user", "ip"}:
        faults.add(line, "an identity has a user, or an ip")


API_VERSION: Final = "quotas/v1"


def document_lines(quotas: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a document of quotas, entity by entity."""
    yield f"apiVersion: {API_VERSION}"
    yield "quotas:" if quotas else "quotas: []"
    for quota in quotas:
        yield f"  - entity: {flow(quota['entity'])}"
        yield f"    values: {flow(quota['values'])}"


_ROOT: Final = frozenset(
    {"apiVersion", "quotas", "cluster_id", "as_of", "next_page_token", "total"}
)
_QUOTA: Final = frozenset({"entity", "entity_key", "values"})
_NUMBER: Final = re.compile(
    r"[+-]?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?"
)
_NOT_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True)
class Document:
    """A document as the service takes it; ``lines`` says where what a JSON pointer names is."""

    file: str
    quotas: list[dict[str, Any]]
    lines: Mapping[str, int]

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"apiVersion": API_VERSION, "quotas": self.quotas}

    def locate(self, pointer: str) -> str | None:
        """Return ``FILE:LINE`` for a pointer into a request for a plan, or null."""
        if not pointer.startswith("/document"):
            return None
        inner = pointer.removeprefix("/document")
        while inner and inner not in self.lines:
            inner = inner.rpartition("/")[0]
        return f"{self.file}:{self.lines.get(inner, 1)}"


def read_document(file: str) -> Document:
    """Read a document."""
    nodes = parse(file, read_file(file))
    if len(nodes) != 1:
        raise UsageError(f"{file} has {len(nodes)} documents; one is needed.")
    reader = _Reader(Diagnostics(file))
    quotas = reader.root(nodes[0])
    reader.faults.refuse_if_any()
    return Document(file, quotas, reader.lines)


class _Reader:
    def __init__(self, faults: Diagnostics) -> None:
        self.faults = faults
        self.lines: dict[str, int] = {}
        self._entities: dict[ClientQuotaEntity, int] = {}

    def root(self, node: Node) -> list[dict[str, Any]]:
        members = dict(self.faults.members(node, _ROOT))
        version = members.get("apiVersion")
        if version is not None and (version.kind, version.text) != (Kind.TEXT, API_VERSION):
            self.faults.add(version.line, f"apiVersion is {API_VERSION}")
        page = members.get("next_page_token")
        if page is not None and page.kind is not Kind.NULL:
            self.faults.add(page.line, "this is one page of an answer; save all of it")
        quotas = members.get("quotas")
        if node.kind is Kind.MAPPING and quotas is None:
            self.faults.add(node.line, "quotas is missing")
        if quotas is None:
            return []
        if quotas.kind is not Kind.LIST:
            self.faults.add(quotas.line, "quotas is a list; write [] where there are none")
        return [self._quota(item, f"/quotas/{at}") for at, item in enumerate(quotas.items)]

    def _quota(self, node: Node, pointer: str) -> dict[str, Any]:
        self.lines[pointer] = node.line
        members = dict(self.faults.members(node, _QUOTA))
        for name in ("entity", "values"):
            if node.kind is Kind.MAPPING and name not in members:
                self.faults.add(node.line, f"{name} is missing")
        entity = self._entity(members.get("entity"), f"{pointer}/entity")
        self._check_key(members.get("entity_key"), entity)
        return {"entity": entity, "values": self._values(members.get("values"), pointer)}

    def _entity(self, node: Node | None, pointer: str) -> dict[str, str | None]:
        if node is None:
            return {}
        self.lines[pointer] = node.line
        entity: dict[str, str | None] = {}
        for kind, name in self.faults.members(node, _TYPES):
            self.lines[f"{pointer}/{kind}"] = name.line
            if name.kind is Kind.NULL or name.kind is Kind.TEXT:
                entity[kind] = None if name.kind is Kind.NULL else name.text
            else:
                self.faults.add(name.line, _not_a_name(kind, name))
        self._check_entity(node, entity)
        return entity

    def _check_entity(self, node: Node, entity: Mapping[str, str | None]) -> None:
        if node.kind is Kind.MAPPING and not node.members:
            self.faults.add(node.line, "an entity has at least one type")
            return
        before = self._entities.get(ClientQuotaEntity.of(entity))
        if before is None or not entity:
            self._entities[ClientQuotaEntity.of(entity)] = node.line
            return
        what = f"the entity {show_entity(entity)} is there twice (before: line {before})"
        self.faults.add(node.line, what)

    def _check_key(self, node: Node | None, entity: Mapping[str, str | None]) -> None:
        if node is not None and node.text != ClientQuotaEntity.of(entity).key:
            self.faults.add(node.line, "entity_key is that of another entity; leave it out")

    def _values(self, node: Node | None, pointer: str) -> dict[str, Number | str]:
        if node is None:
            return {}
        self.lines[f"{pointer}/values"] = node.line
        values: dict[str, Number | str] = {}
        for key, value in self.faults.members(node, None):
            self.lines[f"{pointer}/values/{key.replace('~', '~0').replace('/', '~1')}"] = value.line
            try:
                values[key] = _value(key, value)
            except UsageError as error:
                self.faults.add(value.line, str(error))
        return values


def _not_a_name(kind: str, node: Node) -> str:
    if node.kind is Kind.EMPTY:
        return f"{kind} has no name; write null for the default entity"
    if node.kind in (Kind.MAPPING, Kind.LIST):
        return f"{kind} is a text, or null for the default entity"
    return f'{kind} is a text: write it in quotes, "{node.text}"'


def _value(key: str, node: Node) -> Number | str:
    if node.kind is Kind.NUMBER and _NUMBER.fullmatch(node.text):
        return exact(Decimal(node.text), key)
    if node.kind is Kind.TEXT and node.text in _NOT_NUMBERS:
        return node.text
    if node.kind is Kind.TEXT:
        return read_value(key, node.text)
    if node.kind in (Kind.NULL, Kind.EMPTY):
        raise UsageError(f"{key} has no value; leave the key out, and prune to remove it")
    raise UsageError(f"{key} is a number in plain digits, with a unit or without")
