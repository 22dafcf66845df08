"""Output of ``rpk cluster quotas describe``: records of YAML and JSON, and lines."""

import re
from typing import Final

from yaml.nodes import Node

from app.client.imports.collection import Collection
from app.client.imports.trees import items, name_at, text
from app.documents.nodes import line_of
from app.domain.entities import DEFAULT, show_entity


def read_rpk_record(record: Node, into: Collection) -> None:
    """Read a record, which ``import`` of rpk takes, too.

    Its text ``<default>`` is the default entity: an entity of that name looks the same there.
    Source: ``parseEntityData`` of rpk.
    """
    entity: dict[str, str | None] = {}
    for component in items(record, "entity"):
        name = name_at(component, "name")
        entity[text(component, "type") or ""] = None if name == DEFAULT else name
    for value in items(record, "values"):
        into.read.add(id(value))
        key = text(value, "key")
        written = text(value, "value") or text(value, "values")
        if key is None or written is None:
            into.lose(line_of(value), f"{show_entity(entity)}: a value without key or number")
        else:
            into.add(entity, key, written, line_of(value))
    if not items(record, "values"):
        into.count("entity without values", "entities without values")


_NONE: Final = "no quotas matched to describe"
_COMPONENT: Final = r"(?:user|client-id|client-id-prefix|ip)="
_ENTITY: Final = re.compile(rf"{_COMPONENT}.*")
_BETWEEN: Final = re.compile(rf",\s*(?={_COMPONENT})")
_VALUE: Final = re.compile(r"\s+([a-z_]+)=(\S+)")


def is_rpk_text(content: str) -> bool:
    """Tell whether every line is an entity, a value of it behind blanks, or nothing."""
    lines = [line.rstrip() for line in content.split("\n") if line.strip()]
    if lines == [_NONE]:
        return True
    return bool(lines and _ENTITY.fullmatch(lines[0])) and all(
        _ENTITY.fullmatch(line) or _VALUE.fullmatch(line) for line in lines
    )


def read_rpk_text(content: str, into: Collection) -> None:
    """Read the lines: an entity, and its values each in a line of its own.

    Source: ``printDescribedQuotas`` of rpk.
    """
    entity: dict[str, str | None] = {}
    for number, line in enumerate(content.split("\n"), 1):
        value = _VALUE.fullmatch(line.rstrip())
        if value is not None:
            into.add(entity, value[1], value[2], number)
        elif _ENTITY.fullmatch(line.rstrip()):
            pairs = [pair.split("=", 1) for pair in _BETWEEN.split(line.rstrip())]
            entity = {kind: None if name == DEFAULT else name for kind, name in pairs}
