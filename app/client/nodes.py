"""Files as trees in which everything knows its line; YAML and JSON alike."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from app.client.entities import visible
from app.client.errors import UsageError

_SHOWN_AT_MOST: Final = 100


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


class Faults:
    """Collects what is wrong with a file, so that all of it is told at once."""

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
        told = sorted(self._faults)
        lines = [f"{self.file}:{line}: {visible(what)}" for line, what in told[:_SHOWN_AT_MOST]]
        if len(told) > _SHOWN_AT_MOST:
            lines.append(f"and {len(told) - _SHOWN_AT_MOST} more")
        raise UsageError("\n".join(lines))

    def members(self, node: Node, known: frozenset[str] | None) -> Iterator[tuple[str, Node]]:
        """Yield the members of a mapping, each key once.

        Args:
            node: What should be a mapping.
            known: The keys it may have; null: any.
        """
        if node.kind is not Kind.MAPPING:
            self.add(node.line, f"this is {node.kind.value}, not a mapping")
            return
        seen: dict[str, int] = {}
        for key, member in node.members:
            if key in seen:
                self.add(member.line, f"{key} is there twice (before: line {seen[key]})")
            elif known is not None and key not in known:
                self.add(member.line, f"{key} is unknown here; known: {', '.join(sorted(known))}")
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
        from app.client.json_nodes import parse_json  # noqa: PLC0415

        try:
            return [parse_json(text)]
        except ValueError as error:
            if text.lstrip()[:1] == "{" and _is_flow_yaml(text):
                return _yaml(file, text)
            raise UsageError(f"{file}:{error}") from error
    return _yaml(file, text)


def _is_flow_yaml(text: str) -> bool:
    return text.lstrip()[1:].lstrip()[:1] not in ('"', "}")


def _yaml(file: str, text: str) -> list[Node]:
    from app.client.yaml_nodes import parse_yaml  # noqa: PLC0415 - takes a while to import

    return parse_yaml(file, text)
