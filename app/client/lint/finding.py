"""One finding, and the line that would put it right."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.client.entities import Entity, show_name
from app.client.values import show_value
from app.domain.entities import ENTITY_TYPES


class Severity(StrEnum):
    """``WARNING``: most likely not what was meant. ``HINT``: worth a look."""

    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found.

    Attributes:
        rule: Its name, kebab-case.
        severity: How sure it is that something is wrong.
        entity: Where.
        key: Of which quota; null where it is about the entity.
        message: A sentence for people.
        fixes: Command lines that would put it right; none where there is nothing to be done here.
    """

    rule: str
    severity: Severity
    entity: Entity
    key: str | None
    message: str
    fixes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "entity": dict(self.entity),
            "key": self.key,
            "message": self.message,
            "fixes": list(self.fixes),
        }


def alter_line(
    entity: Entity, add: Mapping[str, Any] | None = None, delete: Sequence[str] = ()
) -> str:
    """Return the command that changes an entity, ready for a shell."""
    known = [kind.value for kind in ENTITY_TYPES if kind in entity]
    names = [f"{kind}={show_name(entity[kind])}" for kind in known if entity[kind] is not None]
    defaults = [kind for kind in known if entity[kind] is None]
    words = ["kafka-client-quotas", "--alter"]
    for option, parts in (
        ("--names", names),
        ("--defaults", defaults),
        ("--add", [f"{key}={show_value(value)}" for key, value in (add or {}).items()]),
        ("--delete", list(delete)),
    ):
        if parts:
            words += [option, ",".join(parts)]
    return shlex.join(words)
