"""YAML and JSON files as trees in which each node has its line."""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from json.decoder import scanstring  # type: ignore[attr-defined]
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
        """Tell them, by line.

        Raises:
            UsageError: There are faults.
        """
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
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        UsageError: It cannot be read, or is not UTF-8.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(f"{visible(file)} cannot be read: {error}.") from error


def parse(file: str, text: str) -> list[Node]:
    """Return the documents of a file: JSON if it begins as JSON does, else YAML.

    Raises:
        UsageError: It is neither; with the line.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return [parse_json(text)]
        except ValueError as error:
            if text.lstrip()[:1] == "{" and _is_flow_yaml(text):
                return parse_yaml(file, text)
            raise UsageError(f"{file}:{error}") from error
    return parse_yaml(file, text)


def _is_flow_yaml(text: str) -> bool:
    return text.lstrip()[1:].lstrip()[:1] not in ('"', "}")


_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Final = {"null": Kind.NULL, "true": Kind.OTHER, "false": Kind.OTHER}
_DEPTH: Final = 100


def parse_json(text: str) -> Node:
    """Return the one value of a text.

    Raises:
        ValueError: It is not JSON; the message begins with the line.
    """
    reader = _JsonReader(text)
    node, at = reader.value(reader.blank(0), 0)
    if at != len(text):
        raise reader.fault(at, "there is more behind the end")
    return node


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def line(self, at: int) -> int:
        return bisect_right(self._ends, at - 1) + 1 if at else 1

    def fault(self, at: int, what: str) -> ValueError:
        return ValueError(f"{self.line(at)}: {what}.")

    def blank(self, at: int) -> int:
        match = _BLANKS.match(self._text, at)
        return at if match is None else match.end()

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        """Return the value at a position, and where the next thing begins."""
        if depth > _DEPTH:
            raise self.fault(at, "nested too deeply")
        mark = self._text[at : at + 1]
        if mark == "{":
            return self._members(at, depth)
        if mark == "[":
            return self._items(at, depth)
        if mark == '"':
            text, end = self._string(at)
            return Node(self.line(at), Kind.TEXT, text), end
        return self._scalar(at)

    def _string(self, at: int) -> tuple[str, int]:
        if self._text[at : at + 1] != '"':
            raise self.fault(at, "a text in double quotes is needed here")
        try:
            text, end = scanstring(self._text, at + 1)
        except ValueError as error:
            raise self.fault(at, "this text has no end, or an escape that is none") from error
        return text, self.blank(end)

    def _scalar(self, at: int) -> tuple[Node, int]:
        for word, kind in _WORDS.items():
            if self._text.startswith(word, at):
                return Node(self.line(at), kind, word), self.blank(at + len(word))
        number = _NUMBER.match(self._text, at)
        if number is None:
            raise self.fault(at, "this is not JSON")
        return Node(self.line(at), Kind.NUMBER, number.group()), self.blank(number.end())

    def _members(self, at: int, depth: int) -> tuple[Node, int]:
        members: list[tuple[str, Node]] = []
        position = self.blank(at + 1)
        while self._text[position : position + 1] != "}":
            if members:
                position = self._expect(",", position)
            key, position = self._string(position)
            member, position = self.value(self._expect(":", position), depth + 1)
            members.append((key, member))
        return Node(self.line(at), Kind.MAPPING, members=tuple(members)), self.blank(position + 1)

    def _items(self, at: int, depth: int) -> tuple[Node, int]:
        items: list[Node] = []
        position = self.blank(at + 1)
        while self._text[position : position + 1] != "]":
            if items:
                position = self._expect(",", position)
            item, position = self.value(position, depth + 1)
            items.append(item)
        return Node(self.line(at), Kind.LIST, items=tuple(items)), self.blank(position + 1)

    def _expect(self, mark: str, at: int) -> int:
        if self._text[at : at + 1] != mark:
            raise self.fault(at, f"{mark} is needed here")
        return self.blank(at + 1)


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one where PyYAML was built with it; both resolve alike."""

_TAG: Final = "tag:yaml.org,2002:"
_NULLS: Final = ("null", "Null", "NULL", "~")
_KINDS: Final = {"str": Kind.TEXT, "int": Kind.NUMBER, "float": Kind.NUMBER}


def parse_yaml(file: str, text: str) -> list[Node]:
    """Return the documents of a text; those without content are left out.

    Raises:
        UsageError: It is not YAML, or has aliases; with the lines.
    """
    faults = Diagnostics(file)
    reader = _YamlReader(faults)
    try:
        roots = list(yaml.compose_all(text, Loader=_LOADER))
        nodes = [reader.node(root) for root in roots if root is not None]
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise UsageError(f"{file}:{line}: this is not YAML: {error.problem}.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{file}: this is not YAML: {error}.") from error
    faults.refuse_if_any()
    return nodes


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
    tag = node.tag.removeprefix(_TAG)
    if tag == "null":
        return Kind.NULL if node.value in _NULLS else Kind.EMPTY
    return _KINDS.get(tag, Kind.OTHER)
