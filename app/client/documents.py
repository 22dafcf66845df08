"""Files of quotas and of identities, read strictly: each fault is reported with its line.

Besides the document of ``export`` the answer of ``--describe --output json`` is read.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from app.client.entities import Number, exact, read_value
from app.client.errors import UsageError
from app.client.nodes import Diagnostics, Kind, Node, parse, read_file
from app.client.output import flow
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity, show_entity

Identity = dict[str, str]

_IDENTITY_TYPES: Final = tuple(kind.value for kind in ENTITY_TYPES)

_WHAT_IS_READ: Final = "write a list of identities, or CSV with the heading user,client-id or ip"


def read_identities(file: str) -> list[Identity]:
    """Read the identities of a file, in order."""
    text = read_file(file)
    heading = [cell.strip() for cell in text.partition("\n")[0].split(",")]
    faults = Diagnostics(file)
    if set(heading) <= set(_IDENTITY_TYPES):
        identities = list(_of_csv(text, heading, faults))
    else:
        identities = list(_of_nodes(parse(file, text), faults))
    faults.refuse_if_any()
    return identities


def _of_csv(text: str, heading: list[str], faults: Diagnostics) -> Iterator[Identity]:
    reader = csv.reader(io.StringIO(text, newline=""))
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
            for kind, name in faults.members(item, frozenset(_IDENTITY_TYPES)):
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
_TYPES: Final = frozenset(kind.value for kind in ENTITY_TYPES)
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
