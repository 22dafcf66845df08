"""YAML with lines: no aliases, no tags, no type that is guessed."""

from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from app.client.errors import UsageError
from app.client.nodes import Faults, Kind, Node

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
    faults = Faults(file)
    reader = _Reader(faults)
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


class _Reader:
    def __init__(self, faults: Faults) -> None:
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
