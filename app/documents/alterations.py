"""The body of ``POST /quotas/alterations`` as a file: read strictly, each fault with its line.

Values may have units as in a document. What the operations mean is judged by the domain.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from yaml.nodes import MappingNode, Node, SequenceNode

from app.documents.faults import Faults
from app.documents.nodes import Kind, items_of, kind_of, line_of, members, parse
from app.documents.quotas import Document, Lines, read_names, read_quota_value, read_yaml
from app.documents.tables import is_csv, read_csv
from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity

_BODY: Final = frozenset(
    {
        *("alterations", "validate_only", "all_or_nothing", "wait", "wait_ms", "reason", "impact"),
        *("expires_at", "expires_in"),
    }
)
_ALTERATION: Final = frozenset({"entity", "ops", "expected"})
_OP: Final = frozenset({"key", "value", "remove"})
_BOOLEANS: Final = ((Kind.OTHER, "true"), (Kind.OTHER, "false"))


@dataclass(frozen=True, slots=True)
class Alterations:
    """The alterations of a body, in its order."""

    alterations: tuple[ClientQuotaAlteration, ...]


def read_proposal(text: str) -> Alterations | Document:
    """Read what is proposed: a body with alterations, or a document of quotas.

    Raises:
        UnreadableDocumentError: With every fault.
    """
    if is_csv(text):
        return read_csv(text)
    nodes = parse(text)
    names = [name.value for name, _ in getattr(nodes[0], "value", ())] if len(nodes) == 1 else []
    return _read_body(nodes[0]) if "alterations" in names else read_yaml(text)


def _read_body(root: Node) -> Alterations:
    faults = Faults()
    found = dict(members(root, _BODY, faults))
    listed = found["alterations"]
    if not isinstance(listed, SequenceNode):
        faults.add(line_of(listed), "alterations is a list", "/alterations")
    items = enumerate(items_of(listed))
    read = [_read_alteration(item, f"/alterations/{index}", faults) for index, item in items]
    faults.refuse_if_any()
    return Alterations(tuple(read))


def _read_alteration(node: Node, pointer: str, faults: Faults) -> ClientQuotaAlteration:
    found = dict(members(node, _ALTERATION, faults, pointer))
    if isinstance(node, MappingNode):
        for name in sorted({"entity", "ops"} - found.keys()):
            faults.add(line_of(node), f"{pointer}: {name} is missing", pointer)
    lines = Lines(line_of(node))
    names = read_names(found["entity"], pointer, lines, faults) if "entity" in found else {}
    ops = found.get("ops")
    if ops is not None and not isinstance(ops, SequenceNode):
        faults.add(line_of(ops), f"{pointer}/ops is a list", f"{pointer}/ops")
    read = _read_ops([] if ops is None else items_of(ops), f"{pointer}/ops", faults)
    return ClientQuotaAlteration(ClientQuotaEntity.of(names), tuple(read))


def _read_ops(nodes: list[Node], pointer: str, faults: Faults) -> Iterator[Op]:
    for index, node in enumerate(nodes):
        at = f"{pointer}/{index}"
        found = dict(members(node, _OP, faults, at))
        key = found.get("key")
        if key is None or kind_of(key) is not Kind.TEXT:
            faults.add(line_of(node), f"{at}/key is missing, or is no text", f"{at}/key")
            continue
        remove = found.get("remove")
        if remove is not None and (kind_of(remove), remove.value) not in _BOOLEANS:
            faults.add(line_of(remove), f"{at}/remove is true or false", f"{at}/remove")
        is_removed = remove is not None and remove.value == "true"
        value, unset = _read_value(key.value, found.get("value"), at, faults)
        yield Op(key.value, value, is_removed or unset)


def _read_value(
    key: str, node: Node | None, pointer: str, faults: Faults
) -> tuple[Decimal | None, bool]:
    """Return the value of an operation, and whether it removes the key."""
    if node is None:
        return None, False
    try:
        value = read_quota_value(key, node)
    except ValueError as error:
        faults.add(line_of(node), f"{pointer}/value: {error}", f"{pointer}/value")
        return None, False
    if value is not None and not isinstance(value, Decimal):
        faults.add(line_of(node), f"{pointer}/value: {key} is a finite number", f"{pointer}/value")
        return None, False
    return value, value is None
