"""Reading trees of other tools: leniently, for their files have more than we look at."""

from collections.abc import Sequence

from app.client.nodes import Kind, Node


def member(node: Node | None, *path: str) -> Node | None:
    """Return what a path of keys leads to, or null."""
    for key in path:
        if node is None:
            return None
        node = next((value for name, value in node.members if name == key), None)
    return None if node is None or node.kind in (Kind.NULL, Kind.EMPTY) else node


def text(node: Node | None, *path: str) -> str | None:
    """Return the text of a scalar at a path, or null."""
    found = member(node, *path)
    scalar = found is not None and found.kind in (Kind.TEXT, Kind.NUMBER, Kind.OTHER)
    return found.text if scalar and found is not None else None


def items(node: Node | None, *path: str) -> Sequence[Node]:
    """Return the items of a list at a path; none where there is no list."""
    found = member(node, *path)
    return () if found is None else found.items
