"""JSON with lines, read strictly: RFC 8259, nothing more."""

import re
from bisect import bisect_right
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Final

from app.client.nodes import Kind, Node

_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Final = {"null": Kind.NULL, "true": Kind.OTHER, "false": Kind.OTHER}
_DEPTH: Final = 100


def parse_json(text: str) -> Node:
    """Return the one value of a text.

    Raises:
        ValueError: It is not JSON; the message begins with the line.
    """
    reader = _Reader(text)
    node, at = reader.value(reader.blank(0), 0)
    if at != len(text):
        raise reader.fault(at, "there is more behind the end")
    return node


class _Reader:
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
