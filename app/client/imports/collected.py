"""What an import has found, and what it could not carry over."""

import math
from collections.abc import Mapping
from typing import Any

from app.client.entities import show_entity, visible
from app.client.values import show_value
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import LONG_MAX, QUOTA_KEY_RULES, TWO_TO_63

Number = int | float


class Collected:
    """Entities with values, and sentences about the rest."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._values: dict[ClientQuotaEntity, dict[str, Number]] = {}
        self.lost: list[str] = []

    def lose(self, line: int, sentence: str) -> None:
        """Note what has no place in a document."""
        self.lost.append(visible(f"{self._file}:{line}: {sentence}"))

    def add(self, entity: Mapping[str, str | None], key: str, text: str, line: int) -> None:
        """Take a value as the other tool wrote it; what no broker would take is noted as lost."""
        what = f"{show_entity(entity)} {key}={text}"
        value = number_of(text)
        if key not in QUOTA_KEY_RULES:
            self.lose(line, f"{what}: not a quota key of a broker")
        elif value is None:
            self.lose(line, f"{what}: not a number over 0")
        else:
            self._put(ClientQuotaEntity.of(entity), key, value, line)

    def _put(self, entity: ClientQuotaEntity, key: str, value: Number, line: int) -> None:
        before = self._values.setdefault(entity, {}).setdefault(key, value)
        if before != value:
            shown = f"{show_entity(entity.as_dict())} {key}"
            self.lose(
                line,
                f"{shown}={show_value(value)}: it was {show_value(before)} before, which is kept",
            )

    def quotas(self) -> list[Mapping[str, Any]]:
        """Return what a document lists, in the order of answers."""
        return [
            {
                "entity": {
                    kind.value: entity.as_dict()[kind]
                    for kind in ENTITY_TYPES
                    if kind in entity.as_dict()
                },
                "values": dict(sorted(self._values[entity].items())),
            }
            for entity in sorted(self._values, key=ClientQuotaEntity.sort_key)
        ]


def number_of(text: str) -> Number | None:
    """Return a float64 as other tools write it (``1.0E7``), in our numbers; null: none over 0.

    2^63, which they write with the digits that a float prints, is 9223372036854775807 here.
    """
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value) or value <= 0 or "_" in text:
        return None
    if value == TWO_TO_63:
        return LONG_MAX
    return int(value) if value.is_integer() else value


def _as_exported(entity: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return an entity with its types in the order of an export."""
    return {kind.value: entity[kind] for kind in ENTITY_TYPES if kind in entity}
