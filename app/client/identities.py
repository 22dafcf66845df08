"""Files of identities: CSV with a heading, or a list in YAML or JSON."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Final

from app.client.nodes import Faults, Kind, Node, parse, read_file
from app.domain.entities import ENTITY_TYPES

Identity = dict[str, str]

_TYPES: Final = tuple(kind.value for kind in ENTITY_TYPES)

_WHAT_IS_READ: Final = "write a list of identities, or CSV with the heading user,client-id or ip"


def read_identities(file: str) -> list[Identity]:
    """Read the identities of a file, in order.

    Raises:
        UsageError: It cannot be read, or a line is no identity; every fault with its line.
    """
    text = read_file(file)
    heading = [cell.strip() for cell in text.partition("\n")[0].split(",")]
    faults = Faults(file)
    if set(heading) <= set(_TYPES):
        identities = list(_of_csv(text, heading, faults))
    else:
        identities = list(_of_nodes(parse(file, text), faults))
    faults.refuse_if_any()
    return identities


def _of_csv(text: str, heading: list[str], faults: Faults) -> Iterator[Identity]:
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


def _of_nodes(nodes: list[Node], faults: Faults) -> Iterator[Identity]:
    for root in nodes:
        if root.kind is not Kind.LIST:
            faults.add(root.line, _WHAT_IS_READ)
        for item in root.items:
            identity: Identity = {}
            for kind, name in faults.members(item, frozenset(_TYPES)):
                if name.kind is Kind.TEXT:
                    identity[kind] = name.text
                else:
                    faults.add(name.line, f"{kind} is a text; write it in quotes")
            _check(identity, item.line, faults)
            yield identity


def _check(identity: Mapping[str, str], line: int, faults: Faults) -> None:
    if not identity.keys() & {"user", "ip"}:
        faults.add(line, "an identity has a user, or an ip")
