"""YAML and JSON files as trees in which each node has its line."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from app.client.errors import UsageError
from app.domain.entities import visible

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

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


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
    if not node.style and _NUMBER.fullmatch(node.value):
        return Kind.NUMBER  # also 1e3, which is a text to YAML 1.1
    tag = node.tag.removeprefix(_TAG)
    if tag == "null":
        return Kind.NULL if node.value in _NULLS else Kind.EMPTY
    return _KINDS.get(tag, Kind.OTHER)
