"""Files of quotas and of identities, read strictly: each fault is reported with its line.

Besides the document of ``export`` the answer of ``--describe --output json`` is read. ``imports``
reads the nodes of PyYAML, too.
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
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.client.entities import Number, exact, read_value
from app.client.errors import UsageError, reason
from app.client.output import API_VERSION
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
        if not isinstance(node, MappingNode):
            self.add(line_of(node), f"this is {kind_of(node).value}, not a mapping")
        seen: dict[str, int] = {}
        for key, member in members_of(node):
            line = line_of(member)
            if key in seen:
                self.add(line, f"{key} is there twice (before: line {seen[key]})")
            elif allowed is not None and key not in allowed:
                self.add(line, f"{key} is unknown here; allowed: {', '.join(sorted(allowed))}")
            else:
                yield key, member
            seen.setdefault(key, line)


def read_file(file: str) -> str:
    """Return the text of a file, or of standard input for ``-``."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except ValueError as error:
        raise UsageError(f"{visible(file)} cannot be read: {reason(error)}.") from error


def read_bytes(file: str) -> bytes:
    """Return the content of a file, or of standard input for ``-``."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{visible(file)} cannot be read: {reason(error)}.") from error


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
    nodes = compose(file, text)
    _check_node(SequenceNode("", nodes), faults, set())
    faults.refuse_if_any()
    return nodes


def compose(file: str, text: str) -> list[Node]:
    """Return the documents as they are: an alias is the very node that it stands for."""
    if text.lstrip()[:1] in ("{", "["):
        text = _PAIR.sub(_join_pair, text)
    try:
        return [node for node in yaml.compose_all(text, Loader=_LOADER) if node is not None]
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise UsageError(f"{file}:{line}: this is not YAML or JSON: {error.problem}.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{file}: this is not YAML or JSON: {error}.") from error


def _join_pair(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return escape[0]
    code = 0x10000 + ((int(escape[1], 16) & 0x3FF) << 10) + (int(escape[2], 16) & 0x3FF)
    return f"\\U{code:08X}"


def _check_node(node: Node, faults: Diagnostics, seen: set[int]) -> None:
    if id(node) in seen:
        faults.add(line_of(node), "anchors and aliases are not read here; write it out")
        return
    seen.add(id(node))
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                faults.add(line_of(key), "a key is a text")
            _check_node(value, faults, seen)
    for item in items_of(node):
        _check_node(item, faults, seen)


def line_of(node: Node) -> int:
    """Return where a node begins, counted from 1."""
    return int(node.start_mark.line) + 1


def kind_of(node: Node) -> Kind:
    """Return what a node is."""
    if not isinstance(node, ScalarNode):
        return Kind.MAPPING if isinstance(node, MappingNode) else Kind.LIST
    if not node.style and _PLAIN_NUMBER.fullmatch(node.value):
        return Kind.NUMBER  # also 1e3, which is a text to YAML 1.1
    tag = node.tag.removeprefix(_TAG)
    if tag == "null":
        return Kind.NULL if node.value in _NULLS else Kind.EMPTY
    return _KINDS.get(tag, Kind.OTHER)


def members_of(node: Node) -> list[tuple[str, Node]]:
    """Return the members of a mapping as written: a key may come twice. Others have none."""
    is_mapping = isinstance(node, MappingNode)
    return [(str(key.value), value) for key, value in node.value] if is_mapping else []


def items_of(node: Node) -> list[Node]:
    """Return the items of a list; others have none."""
    return list(node.value) if isinstance(node, SequenceNode) else []


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
        if not isinstance(root, SequenceNode):
            faults.add(line_of(root), _WHAT_IS_READ)
        for item in items_of(root):
            identity: Identity = {}
            for kind, name in faults.members(item, _TYPES):
                if kind_of(name) is Kind.TEXT:
                    identity[kind] = name.value
                else:
                    faults.add(line_of(name), f"{kind} is a text; write it in quotes")
            _check(identity, line_of(item), faults)
            yield identity


def _check(identity: Mapping[str, str], line: int, faults: Diagnostics) -> None:
    if not identity.keys() & {"user", "ip"}:
        faults.add(line, "an identity has a user, or an ip")


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
    """A document as the service takes it, and the node that it was read from."""

    file: str
    quotas: list[dict[str, Any]]
    root: Node

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"apiVersion": API_VERSION, "quotas": self.quotas}

    def locate(self, pointer: str) -> str | None:
        """Return ``FILE:LINE`` for a pointer into a request for a plan, or null."""
        _, *steps = pointer.split("/")
        if steps[:1] != ["document"]:
            return None
        node = self.root
        for step in steps[1:]:
            below = dict(members_of(node)) | {str(n): item for n, item in enumerate(items_of(node))}
            node = below.get(step.replace("~1", "/").replace("~0", "~"), node)
        return f"{self.file}:{line_of(node)}"


def read_document(file: str) -> Document:
    """Read a document."""
    nodes = parse(file, read_file(file))
    if len(nodes) != 1:
        raise UsageError(f"{file} has {len(nodes)} documents; one is needed.")
    faults = Diagnostics(file)
    quotas = _quotas(nodes[0], faults)
    faults.refuse_if_any()
    return Document(file, quotas, nodes[0])


def _quotas(root: Node, faults: Diagnostics) -> list[dict[str, Any]]:
    members = dict(faults.members(root, _ROOT))
    version = members.get("apiVersion")
    if version is not None and (kind_of(version), version.value) != (Kind.TEXT, API_VERSION):
        faults.add(line_of(version), f"apiVersion is {API_VERSION}")
    page = members.get("next_page_token")
    if page is not None and kind_of(page) is not Kind.NULL:
        faults.add(line_of(page), "this is one page of an answer; save all of it")
    quotas = members.get("quotas")
    if quotas is None:
        if isinstance(root, MappingNode):
            faults.add(line_of(root), "quotas is missing")
        return []
    if not isinstance(quotas, SequenceNode):
        faults.add(line_of(quotas), "quotas is a list; write [] where there are none")
    before: dict[ClientQuotaEntity, int] = {}
    return [_quota(item, before, faults) for item in items_of(quotas)]


def _quota(node: Node, before: dict[ClientQuotaEntity, int], faults: Diagnostics) -> dict[str, Any]:
    members = dict(faults.members(node, _QUOTA))
    if isinstance(node, MappingNode):
        for name in sorted({"entity", "values"} - members.keys()):
            faults.add(line_of(node), f"{name} is missing")
    entity = _entity(members["entity"], before, faults) if "entity" in members else {}
    key = members.get("entity_key")
    if key is not None and key.value != ClientQuotaEntity.of(entity).key:
        faults.add(line_of(key), "entity_key is that of another entity; leave it out")
    return {"entity": entity, "values": dict(_values(members.get("values"), faults))}


def _entity(
    node: Node, before: dict[ClientQuotaEntity, int], faults: Diagnostics
) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, name in faults.members(node, _TYPES):
        if kind_of(name) in (Kind.NULL, Kind.TEXT):
            entity[kind] = None if kind_of(name) is Kind.NULL else name.value
        else:
            faults.add(line_of(name), _not_a_name(kind, name))
    line, of = line_of(node), ClientQuotaEntity.of(entity)
    if isinstance(node, MappingNode) and not node.value:
        faults.add(line, "an entity has at least one type")
    elif of in before:
        what = f"the entity {show_entity(entity)} is there twice (before: line {before[of]})"
        faults.add(line, what)
    elif entity:
        before[of] = line
    return entity


def _values(node: Node | None, faults: Diagnostics) -> Iterator[tuple[str, Number | str]]:
    for key, value in () if node is None else faults.members(node, None):
        try:
            yield key, _value(key, value)
        except UsageError as error:
            faults.add(line_of(value), str(error))


def _not_a_name(kind: str, node: Node) -> str:
    if not isinstance(node, ScalarNode):
        return f"{kind} is a text, or null for the default entity"
    if kind_of(node) is Kind.EMPTY:
        return f"{kind} has no name; write null for the default entity"
    return f'{kind} is a text: write it in quotes, "{node.value}"'


def _value(key: str, node: Node) -> Number | str:
    match kind_of(node):
        case Kind.NUMBER if _NUMBER.fullmatch(node.value):
            return exact(Decimal(node.value), key)
        case Kind.TEXT:
            return node.value if node.value in _NOT_NUMBERS else read_value(key, node.value)
        case Kind.NULL | Kind.EMPTY:
            raise UsageError(f"{key} has no value; leave the key out, and prune to remove it")
    raise UsageError(f"{key} is a number in plain digits, with a unit or without")
