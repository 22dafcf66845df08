"""Files of quotas and of identities, read strictly: each fault is reported with its line.

Besides the document of ``export`` the answer of ``--describe --output json`` is read, and CSV.
``imports`` reads the nodes of YAML, too.
"""

import csv
import io
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from yaml.nodes import Node, SequenceNode

from app.client.entities import json_number
from app.client.errors import UsageError, reason
from app.documents import API_VERSION, nodes, tables
from app.documents.faults import MAX_FAULTS, Faults, UnreadableDocumentError
from app.documents.nodes import Kind, items_of, kind_of, line_of, members
from app.documents.quotas import Document, read_yaml
from app.domain.alterations import DesiredValue, quota_value_json
from app.domain.entities import ENTITY_TYPES, visible
from app.domain.quantities import UNSET

_MAX_LINES: Final = 100


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Report what cannot be read of a file: each fault with its line.

    Raises:
        UsageError: A line of text for each fault.
    """
    try:
        yield
    except UnreadableDocumentError as error:
        faults = error.faults
        lines = [f"{file}:{fault.line}: {visible(fault.detail)}" for fault in faults[:_MAX_LINES]]
        if len(faults) > _MAX_LINES:
            at_least = "at least " if len(faults) == MAX_FAULTS else ""
            lines.append(f"and {at_least}{len(faults) - _MAX_LINES} more")
        raise UsageError("\n".join(lines)) from error


def read_file(file: str) -> str:
    """Return the text of a file, or of standard input for ``-``."""
    content = read_bytes(file)
    if content.startswith(_UTF_16):
        raise UsageError(f"{visible(file)} is UTF-16: {_TO_UTF_8}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{visible(file)}:{line}: this is not UTF-8: {_TO_UTF_8}.") from error


def read_bytes(file: str) -> bytes:
    """Return the content of a file, or of standard input for ``-``."""
    if file == "-" and sys.stdin is None:
        raise UsageError("Standard input is closed, so - cannot be read.")
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{visible(file)} cannot be read: {reason(error)}.") from error


_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_TO_UTF_8: Final = "save it as UTF-8 (spreadsheets call it CSV UTF-8), or convert it with iconv"


def compose(file: str, text: str) -> list[Node]:
    """Return the documents of a file of YAML or JSON: an alias is the node that it stands for."""
    with reading(file):
        return nodes.compose(text)


Identity = dict[str, str]

_TYPES: Final = frozenset(kind.value for kind in ENTITY_TYPES)

_WHAT_IS_READ: Final = "write a list of identities, or CSV with the heading user,client-id or ip"


def read_identities(file: str) -> list[Identity]:
    """Read the identities of a file, in order."""
    text = read_file(file)
    # Of all lines alike the blanks before a cell are skipped; those within quotes count.
    heading = [cell.lstrip() for cell in text.partition("\n")[0].rstrip("\r").split(",")]
    faults = Faults()
    with reading(file):
        if not text.strip():
            faults.add(1, f"the file is empty; {_WHAT_IS_READ}")
        if _TYPES.issuperset(heading):
            identities = list(_of_csv(text, heading, faults))
        else:
            identities = list(_of_nodes(nodes.parse(text), faults))
        faults.refuse_if_any()
    return identities


def _of_csv(text: str, heading: list[str], faults: Faults) -> Iterator[Identity]:
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


def _of_nodes(roots: list[Node], faults: Faults) -> Iterator[Identity]:
    for root in roots:
        if not isinstance(root, SequenceNode):
            faults.add(line_of(root), _WHAT_IS_READ)
        for item in items_of(root):
            identity: Identity = {}
            for kind, name in members(item, _TYPES, faults):
                if kind_of(name) is Kind.TEXT:
                    identity[kind] = name.value
                else:
                    faults.add(line_of(name), f"{kind} is a text; write it in quotes")
            _check(identity, line_of(item), faults)
            yield identity


def _check(identity: Mapping[str, str], line: int, faults: Faults) -> None:
    if not identity.keys() & {"user", "ip"}:
        faults.add(line, "an identity has a user, or an ip")


@dataclass(frozen=True)
class QuotaFile:
    """A document as it was read from a file."""

    file: str
    document: Document

    def body(self) -> dict[str, Any]:
        """Return it as JSON; what no JSON number says is text."""
        quotas = [
            {
                "entity": quota.entity.as_dict(),
                "values": {key: json_value(value) for key, value in quota.values.items()},
            }
            for quota in self.document.quotas
        ]
        return {"apiVersion": API_VERSION, "quotas": quotas}

    def locate(self, pointer: str) -> str | None:
        """Return ``FILE:LINE`` for a pointer into a request for a plan, or null."""
        root, _, below = pointer.removeprefix("/").partition("/")
        line = self.document.line_of(f"/{below}") if root == "document" else None
        return None if line is None else f"{self.file}:{line}"


def json_value(value: DesiredValue | None) -> Any:
    """Return a value as a document in JSON has it; what no JSON number says is text."""
    if value is None:
        return UNSET
    if isinstance(value, float):
        return quota_value_json(value)
    number = json_number(value)
    return number if math.isfinite(number) else str(value)


def read_document(file: str) -> QuotaFile:
    """Read a document of YAML or JSON, or a table of CSV."""
    text = read_file(file)
    read = tables.read_csv if tables.is_csv(text) else read_yaml
    with reading(file):
        return QuotaFile(file, read(text))
