"""YAML, read strictly: no aliases, no repeated or unknown keys, no type that is guessed."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Self

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.http.strict_json import shown

MAX_DEPTH: Final = 20

_TEXT: Final = "tag:yaml.org,2002:str"
_BOOLEAN: Final = "tag:yaml.org,2002:bool"
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NUMBER: Final = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?")
_FLAGS: Final = {"true": True, "false": False}
_MERGE: Final = "tag:yaml.org,2002:merge"


@dataclass
class YamlReading:
    """Collects every fault with its line, so that all are told at once."""

    faults: list[tuple[int, str]] = field(default_factory=list)

    def reject(self, line: int, fault: str) -> None:
        """Note a fault; lines count from 1, the sentence comes without its end."""
        self.faults.append((line, fault))

    def text(self, node: Node) -> str | None:
        """Return the text of a node, or note that it is none."""
        if isinstance(node, ScalarNode) and node.tag == _TEXT and node.value:
            return str(node.value)
        self.reject(line_of(node), f"{_shown(node)} is not a text")
        return None


def line_of(node: Node) -> int:
    """Return the line of a node, from 1."""
    return int(node.start_mark.line) + 1


def compose_document(content: bytes, reading: YamlReading) -> Node | None:
    """Return the one document of a file as nodes; null where there is none.

    Raises:
        yaml.YAMLError: It is not YAML, or several documents.
        UnicodeDecodeError: It is not UTF-8.
    """
    text = content.decode("utf-8")
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            reading.reject(line, "aliases are not read here")
        if depth > MAX_DEPTH:
            reading.reject(line, "nested too deeply")
            return None
    root: Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    return None if reading.faults else root


@dataclass(frozen=True)
class YamlMapping:
    """A mapping with known keys, each at most once."""

    reading: YamlReading
    at: int
    members: dict[str, Node]

    @classmethod
    def of(cls, node: Node, reading: YamlReading, known: Sequence[str]) -> Self | None:
        """Read a node; null where it is no mapping, which is noted."""
        if not isinstance(node, MappingNode):
            reading.reject(line_of(node), f"{_shown(node)} is not a mapping of {_listed(known)}")
            return None
        members: dict[str, Node] = {}
        for name, value in _pairs(node, reading):
            if name not in known:
                fault = f"{shown(name)} is unknown here; known are {_listed(known)}"
                reading.reject(line_of(value), fault)
            elif name in members:
                reading.reject(line_of(value), f"{shown(name)} is there twice")
            else:
                members[name] = value
        return cls(reading, line_of(node), members)

    def __contains__(self, name: str) -> bool:
        """Tell whether the key is there."""
        return name in self.members

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that are there."""
        return tuple(self.members)

    def need(self, *names: str) -> bool:
        """Tell whether all are there, and note those that are not."""
        missing = [name for name in names if name not in self.members]
        for name in missing:
            self.reading.reject(self.at, f"{name} is missing")
        return not missing

    def node(self, name: str) -> Node:
        """Return a member that is there."""
        return self.members[name]

    def line(self, name: str) -> int:
        """Return the line of a member that is there."""
        return line_of(self.members[name])

    def text(self, name: str) -> str | None:
        """Return a text that is there, or note that it is none."""
        return self.reading.text(self.members[name])

    def flag(self, name: str) -> bool:
        """Return ``true`` or ``false``; false where it is absent. Other spellings are refused."""
        node = self.members.get(name)
        if node is None:
            return False
        if isinstance(node, ScalarNode) and node.tag == _BOOLEAN and node.value in _FLAGS:
            return _FLAGS[node.value]
        self.reading.reject(line_of(node), f"{name} is true or false")
        return False

    def number(self, name: str) -> Decimal | None:
        """Return a number in plain digits, over 0; null where it is absent or noted as wrong."""
        node = self.members.get(name)
        if node is None:
            return None
        if isinstance(node, ScalarNode) and node.tag in _NUMBERS and _NUMBER.fullmatch(node.value):
            number = Decimal(node.value)
            if number > 0:
                return number
        fault = f"{name} is a number over 0 in plain digits, not {_shown(node)}"
        self.reading.reject(line_of(node), fault)
        return None

    def items(self, name: str) -> Sequence[Node]:
        """Return the items of a list that is there and not empty, or note that it is none."""
        node = self.members[name]
        if isinstance(node, SequenceNode) and node.value:
            return list(node.value)
        self.reading.reject(line_of(node), f"{name} is a list with at least one item")
        return ()


def _pairs(node: MappingNode, reading: YamlReading) -> Iterator[tuple[str, Node]]:
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.tag != _MERGE:
            yield str(key.value), value
        else:
            reading.reject(line_of(key), "a key is a plain text")


def _listed(known: Sequence[str]) -> str:
    return ", ".join(known)


def _shown(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return shown(node.value)
    return "a mapping" if isinstance(node, MappingNode) else "a list"
