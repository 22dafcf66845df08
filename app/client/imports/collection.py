"""What a file of another tool holds: quotas, what a document cannot hold, and the rest."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.client.entities import show_value
from app.client.output import counted
from app.domain.alterations import JsonNumber, quota_value_json
from app.domain.entities import (
    DEFAULT_NAME,
    ENTITY_TYPES,
    ClientQuotaEntity,
    entity_warnings,
    show_entity,
    visible,
)
from app.domain.quota_keys import (
    IP_TYPES,
    QUOTA_KEY_RULES,
    USER_CLIENT_TYPES,
)


class NotReadError(Exception):
    """A resource cannot be carried over; the message says why."""


class Collection:
    """Entities with values, sentences about what is lost, and numbers of the rest.

    Attributes:
        lost: A sentence for each quota setting that a document cannot hold or that was not read.
        warnings: Sentences about what was read and may not be what was intended, each once.
        others: How many there are of what has no quotas, by its singular and plural.
        read: Ids of the nodes whose values were judged, be they carried over or lost.
        ignored: Ids of the nodes below which nothing needs to be read.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._values: dict[ClientQuotaEntity, dict[str, JsonNumber]] = {}
        self.lost: list[str] = []
        self.warnings: dict[str, None] = {}
        self.others: Counter[tuple[str, str]] = Counter()
        self.read: set[int] = set()
        self.ignored: set[int] = set()

    def lose(self, line: int, sentence: str) -> None:
        """Note a quota setting that is not carried over."""
        self.lost.append(visible(f"{self.file}:{line}: {sentence}"))

    def warn(self, line: int, sentence: str) -> None:
        """Note what a person should look at."""
        self.warnings[visible(f"{self.file}:{line}: {sentence}")] = None

    def count(self, singular: str, plural: str) -> None:
        """Count something that has no quotas."""
        self.others[singular, plural] += 1

    def add(self, entity: Mapping[str, str | None], key: str, text: str, line: int) -> None:
        """Take a value as the other tool wrote it; what no broker would take is noted as lost."""
        what = f"{show_entity(entity)} {key}={text}"
        value = number_of(text)
        if key not in QUOTA_KEY_RULES:
            # What stands behind it may be a secret.
            self.lose(line, f"{show_entity(entity)} {key}: not a quota key of a broker")
        elif not is_entity(entity):
            self.lose(line, f"{what}: Kafka has no such entity")
        elif not QUOTA_KEY_RULES[key].entity_types.issuperset(entity):
            self.lose(line, f"{what}: not a key of such an entity")
        elif value is None:
            self.lose(line, f"{what}: {_not_a_value(text)}")
        else:
            self._put(ClientQuotaEntity.of(entity), key, value, line)

    def _put(self, entity: ClientQuotaEntity, key: str, value: JsonNumber, line: int) -> None:
        before = self._values.setdefault(entity, {}).setdefault(key, value)
        if before != value:
            what = f"{entity} {key}"
            self.lose(
                line, f"{what}={show_value(value)}: it was {show_value(before)} before, which stays"
            )

    def entities(self) -> list[ClientQuotaEntity]:
        """Return the entities that have values, in the order of answers."""
        return sorted(self._values, key=ClientQuotaEntity.sort_key)

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
            for entity in self.entities()
        ]

    def summary(self) -> Iterator[str]:
        """Yield lines for people: what is lost, what to look at, what had no quotas."""
        if self.lost:
            yield f"Not carried over ({len(self.lost)}):"
            yield from (f"  {sentence}" for sentence in self.lost)
        warnings = [*self.warnings, *self._warnings_of_names()]
        if warnings:
            yield f"Please look at ({len(warnings)}):"
            yield from (f"  {sentence}" for sentence in warnings)
        if self.others:
            numbers = [counted(number, *noun) for noun, number in sorted(self.others.items())]
            yield f"Without quotas: {visible(', '.join(numbers))}."
        if not self._values and not self.lost:
            yield f"{visible(self.file)} has no quotas; the document is empty."

    def _warnings_of_names(self) -> Iterator[str]:
        for entity in self.entities():
            for warning in entity_warnings(entity):
                yield f"{entity}: {warning.detail}"


def is_entity(entity: Mapping[str, str | None]) -> bool:
    """Tell whether Kafka has entities of these types, with names that are not empty."""
    types = frozenset(entity)
    is_type = bool(types) and (types <= USER_CLIENT_TYPES or types <= IP_TYPES)
    return is_type and all(name is DEFAULT_NAME or name for name in entity.values())


def _not_a_value(text: str) -> str:
    if is_template(text):
        return "a template, filled in elsewhere"
    return "not a number over 0"


_TEMPLATE: Final = re.compile(r"\$\{|\{\{|%\{|\{%")


def is_template(text: str) -> bool:
    """Tell whether a text has something that another tool fills in."""
    return _TEMPLATE.search(text) is not None


_NUMBER: Final = re.compile(r"(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""None with zeros at its start: YAML 1.1 reads those as octal."""


def number_of(text: str) -> JsonNumber | None:
    """Return a float64 as other tools write it (``1.0E7``), in our numbers; null: none over 0.

    2^63, which they write with the digits that a float prints, is 9223372036854775807 here.
    """
    if _NUMBER.fullmatch(text.strip()) is None:
        return None
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        return None
    return quota_value_json(value)


_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def quota_key(word: str) -> str | None:
    """Return Kafka's spelling of a quota key that is written in another, or null.

    ``producerByteRate``, ``producer-byte-rate`` and ``config.producer_byte_rate`` are
    ``producer_byte_rate``.
    """
    last = re.split(r"[./]", word)[-1]
    key = _WORD.sub("_", last).replace("-", "_").lower()
    return key if key in QUOTA_KEY_RULES else None
