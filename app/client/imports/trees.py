"""YAML and JSON of other tools as nodes: aliases and merges resolved, nothing lost unseen."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.client.documents import compose
from app.client.errors import UsageError
from app.client.imports.collection import Collection, NotReadError, is_template, quota_key
from app.documents.nodes import Kind, items_of, kind_of, line_of, members_of
from app.domain.entities import show_entity

_MERGE: Final = "tag:yaml.org,2002:merge"
_BOOLEAN: Final = "tag:yaml.org,2002:bool"
NULL: Final = "tag:yaml.org,2002:null"
EXPRESSION: Final = "!expression"
"""The tag of what has a value only where the other tool computes it."""

LITERAL: Final = "!literal"
"""The tag of a text in which nothing is filled in, whatever it looks like."""

_MAX_COPIES: Final = 100_000
"""So many nodes may come from aliases: a real file has thousands, an attack billions."""


def read_trees(file: str, text: str) -> list[Node]:
    """Return the documents of a file; each node stands for one spot, aliases are copies.

    Raises:
        UsageError: It is neither YAML nor JSON, or its aliases unfold without end.
    """
    nodes = [node for node in compose(file, text) if not is_null(node)]
    unfolding = _Unfolding(file)
    try:
        return [unfolding.unfold(node) for node in nodes]
    except RecursionError:
        raise UsageError(f"{file} is nested too deeply.") from None


class _Unfolding:
    """Gives each alias a copy of what it stands for, and each merge its members."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._seen: dict[int, Node] = {}
        self._above: set[int] = set()
        self._copies = 0

    def unfold(self, node: Node) -> Node:
        """Return the node, or a copy of one that has been returned before."""
        if id(node) in self._above:
            raise UsageError(f"{self._file}:{line_of(node)}: an alias stands for what it is in.")
        self._above.add(id(node))
        own = self._copy(node) if id(node) in self._seen else node
        self._seen[id(own)] = own
        if isinstance(own, MappingNode):
            pairs = [(key, value) for key, value in own.value if isinstance(key, ScalarNode)]
            own.value = list(_merge([(key, self.unfold(value)) for key, value in pairs]))
        elif isinstance(own, SequenceNode):
            own.value = [self.unfold(item) for item in own.value]
        self._above.discard(id(node))
        return own

    def _copy(self, node: Node) -> Node:
        self._copies += 1
        if self._copies > _MAX_COPIES:
            raise UsageError(f"{self._file}: its aliases unfold to over {_MAX_COPIES:,} nodes.")
        if isinstance(node, ScalarNode):
            return ScalarNode(node.tag, node.value, node.start_mark, style=node.style)
        kind = MappingNode if isinstance(node, MappingNode) else SequenceNode
        return kind(node.tag, list(node.value), node.start_mark)


def _merge(pairs: Sequence[tuple[ScalarNode, Node]]) -> Iterator[tuple[ScalarNode, Node]]:
    own = [(key, value) for key, value in pairs if key.tag != _MERGE]
    names = {key.value for key, _ in own}
    yield from own
    for key, value in pairs:
        if key.tag != _MERGE:
            continue
        for mapping in [value, *items_of(value)]:
            inherited = mapping.value if isinstance(mapping, MappingNode) else []
            yield from [pair for pair in inherited if pair[0].value not in names]
            names.update(pair[0].value for pair in inherited)


def is_null(node: Node) -> bool:
    """Tell whether a node stands for nothing."""
    return kind_of(node) in (Kind.NULL, Kind.EMPTY)


def member(node: Node | None, *path: str) -> Node | None:
    """Return what a path of keys leads to, or null."""
    for key in path:
        if node is None:
            return None
        node = dict(reversed(members_of(node))).get(key)
    return None if node is None or is_null(node) else node


def text(node: Node | None, *path: str) -> str | None:
    """Return the text of a scalar at a path, or null."""
    found = member(node, *path)
    return str(found.value) if isinstance(found, ScalarNode) else None


def items(node: Node | None, *path: str) -> Sequence[Node]:
    """Return the items of a list at a path; none where there is no list."""
    found = member(node, *path)
    return () if found is None else items_of(found)


def name_at(node: Node, *path: str) -> str | None:
    """Return the name at a path; null where there is none.

    Raises:
        NotReadError: There is something that is no name, or one that the other tool fills in.
    """
    found = member(node, *path)
    if found is None:
        return None
    if not isinstance(found, ScalarNode):
        raise NotReadError(f"{'.'.join(path)} is not a name")
    if found.tag == EXPRESSION or (found.tag != LITERAL and is_template(found.value)):
        raise NotReadError(f"{'.'.join(path)} is {found.value}, which is filled in elsewhere")
    return str(found.value)


def is_true(node: Node | None, *path: str) -> bool:
    """Tell whether a member is true, also as a text."""
    return (text(node, *path) or "").lower() == "true"


def is_zero(node: Node) -> bool:
    """Tell whether a value is 0, by which some tools mean that it is not set."""
    return isinstance(node, ScalarNode) and re.fullmatch(r"0+(\.0*)?", node.value) is not None


def add_values(into: Collection, entity: Mapping[str, str | None], values: Node) -> bool:
    """Take each member of a mapping as a value; return whether there was any that is set.

    What is no quota key is noted as lost.
    """
    is_any = False
    if any(field.isdecimal() and is_null(value) for field, value in members_of(values)):
        into.ignored.add(id(values))
        sentence = "a comma in a number separates members in YAML, so no value is certain"
        into.lose(line_of(values), f"{show_entity(entity)}: {sentence}")
        return True
    for field, value in members_of(values):
        if not is_null(value):
            is_any = True
            add_value(into, entity, field, value)
    return is_any


def add_value(into: Collection, entity: Mapping[str, str | None], field: str, value: Node) -> None:
    """Take one value under a key in any spelling."""
    into.read.add(id(value))
    key = quota_key(field) or field
    if isinstance(value, ScalarNode):
        into.add(entity, key, str(value.value), line_of(value))
    else:
        into.lose(line_of(value), f"{show_entity(entity)} {key} is {kind_of(value).value}")


_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_WORDS: Final = (
    r"(?:(?:producer|consumer)[-_]?byte|controller[-_]?mutation|connection[-_]?creation)[-_]?rate"
    r"|request[-_]?percentage"
)
_EMBEDDED: Final = re.compile(
    rf"(?i)(?:{_WORDS})[\"']?\s*[:=]\s*[\"']?(?:\d|\$\{{|\{{\{{)|/(?:{_WORDS})\b"
)
"""A key with a value, or, as in patches, a path to one."""


def lose_unread(nodes: Sequence[Node], into: Collection) -> None:
    """Note each quota setting of a file that no reader has judged, so that none goes unseen."""
    stack = [("", node) for node in reversed(nodes)]
    while stack:
        path, node = stack.pop()
        if id(node) in into.ignored or id(node) in into.read:
            continue
        if isinstance(node, ScalarNode):
            if _EMBEDDED.search(node.value):
                into.lose(line_of(node), f"{path or 'a text'} has quotas in a text: not read")
            continue
        below = [(str(n), item) for n, item in enumerate(items_of(node))]
        below += [pair for pair in members_of(node) if pair[0] != _APPLIED]
        deeper = []
        for key, value in below:
            at = f"{path}.{key}" if path else key
            if quota_key(key) is None or id(value) in into.read:
                deeper.append((at, value))
            elif not _is_nothing(value):
                into.lose(line_of(value), f"{at}: not read")
        stack += reversed(deeper)


def _is_nothing(node: Node) -> bool:
    return is_null(node) or node.tag == _BOOLEAN
