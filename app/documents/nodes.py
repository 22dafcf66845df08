"""YAML, and JSON, which is YAML too, as the nodes of PyYAML, with their lines."""

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event, ScalarEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.documents.faults import Fault, Faults, UnreadableDocumentError


class Kind(Enum):
    """What a node is. ``EMPTY`` is nothing at all where YAML means null by it."""

    MAPPING = "a mapping"
    LIST = "a list"
    TEXT = "a text"
    NUMBER = "a number"
    NULL = "null"
    EMPTY = "nothing"
    OTHER = "true, false or a date"


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one where PyYAML was built with it; both resolve alike."""

_TAG: Final = "tag:yaml.org,2002:"
_NULLS: Final = ("null", "Null", "NULL", "~")
_KINDS: Final = {"str": Kind.TEXT, "int": Kind.NUMBER, "float": Kind.NUMBER}
_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_PAIR: Final = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)", re.IGNORECASE)
"""An escape; JSON writes a character beyond 16 bits as two, which YAML does not know."""

_DEEPEST: Final = 100
"""Levels of mappings and lists; the parser in C composes them on its stack, which ends the process
where it is full."""


def parse(text: str, most: int | None = None) -> list[Node]:
    """Return the documents of YAML, or of JSON; empty ones are left out.

    Args:
        text: Of any number of documents.
        most: So many nodes are read at most; null: any number.

    Raises:
        UnreadableDocumentError: Not YAML, aliases, keys that are no text, too deep, too many nodes.
    """
    faults = Faults()
    nodes = compose(text, most, faults)
    for node in nodes:
        _check_keys(node, faults)
    faults.refuse_if_any()
    return nodes


def compose(text: str, most: int | None = None, aliases: Faults | None = None) -> list[Node]:
    """Return the documents as they are written: an alias is the very node that it stands for.

    Args:
        text: Of any number of documents.
        most: So many nodes are read at most; null: any number.
        aliases: Where they are faults; null: they are none.

    Raises:
        UnreadableDocumentError: Not YAML, too deep, too many nodes.
    """
    try:
        written = _as_yaml(text)
        _check_events(yaml.parse(written, Loader=_LOADER), most, aliases)
        return [node for node in yaml.compose_all(written, Loader=_LOADER) if node is not None]
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        detail = f"this is not YAML or JSON: {error.problem}."
        raise UnreadableDocumentError([Fault(line, detail)]) from error
    except yaml.reader.ReaderError as error:
        line = written.encode(errors="replace").count(b"\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        detail = f"this is not YAML or JSON: the character U+{code:04X} stands here, unescaped."
        raise UnreadableDocumentError([Fault(line, detail)]) from error
    except yaml.YAMLError as error:
        raise UnreadableDocumentError([Fault(1, f"this is not YAML or JSON: {error}.")]) from error


def _as_yaml(text: str) -> str:
    """Return JSON with escapes for whatever YAML forbids in its texts or reads otherwise."""
    if not is_json(text):
        return text
    ascii_text = text.encode("ascii", "backslashreplace").decode().replace("\x7f", "\\x7f")
    return _PAIR.sub(_join_pair, ascii_text)


def is_json(text: str) -> bool:
    """Tell whether a text is an object or an array of JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text, object_pairs_hook=lambda _: None)
    except (ValueError, RecursionError):
        return False
    return True


def _join_pair(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return escape[0]
    code = 0x10000 + ((int(escape[1], 16) & 0x3FF) << 10) + (int(escape[2], 16) & 0x3FF)
    return f"\\U{code:08X}"


def _check_events(events: Iterator[Event], most: int | None, aliases: Faults | None) -> None:
    """Look at a text before it is composed: its aliases, its depth, its size."""
    depth = number = 0
    faults = Faults()
    for event in events:
        line = line_of(event)
        if isinstance(event, AliasEvent) and aliases is not None:
            aliases.add(line, "anchors and aliases are not read here; write it out")
        elif isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        number += isinstance(event, ScalarEvent | CollectionStartEvent)
        if depth > _DEEPEST:
            faults.add(line, f"over {_DEEPEST} mappings and lists are nested in each other")
            break
        if most is not None and number > most:
            faults.add(line, "the document is too large; split it", code="too-many-changes")
            break
    faults.refuse_if_any()


def _check_keys(node: Node, faults: Faults) -> None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                faults.add(line_of(key), "a key is a text")
            _check_keys(value, faults)
    for item in items_of(node):
        _check_keys(item, faults)


def line_of(node: Node | Event) -> int:
    """Return where a node or an event begins, counted from 1."""
    mark: Any = node.start_mark
    return int(mark.line) + 1


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


def members(
    node: Node, allowed: frozenset[str] | None, faults: Faults, pointer: str = ""
) -> Iterator[tuple[str, Node]]:
    """Yield the members of a mapping, each key once.

    Args:
        node: What should be a mapping.
        allowed: The keys it may have; null: any.
        faults: What is wrong is added here.
        pointer: Of the node.
    """
    if not isinstance(node, MappingNode):
        faults.add(line_of(node), f"this is {kind_of(node).value}, not a mapping", pointer)
    seen: dict[str, int] = {}
    for key, member in members_of(node):
        line = line_of(member)
        if key in seen:
            faults.add(line, f"{key} is there twice (before: line {seen[key]})", pointer)
        elif allowed is not None and key not in allowed:
            names = ", ".join(sorted(allowed))
            faults.add(line, f"{key} is unknown here; allowed: {names}", pointer)
        else:
            yield key, member
        seen.setdefault(key, line)
