"""The rules of alterations, for what a plan would change: the same ones, told of the document."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from app.domain.alteration_rules import judge
from app.domain.alterations import ClientQuotaAlteration, Op, Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.entity_rules import canonical_entity
from app.domain.errors import Violation

NOT_NUMBERS_DETAIL: Final = (
    "NaN and the infinities are read where other tools stored them; nobody may set them here."
)

_PLACE: Final = re.compile(r"/alterations(?:/(\d+)(?:/ops(?:/(\d+)(?:/\w+)?)?|/entity(.*))?)?")


@dataclass(frozen=True, slots=True)
class OpPlaces:
    """Where an entity and each of its operations come from, as JSON pointers."""

    entity: str
    ops: tuple[str, ...] = ()


def place_of_quota(position: int) -> str:
    """Return the pointer to an item of the document."""
    return f"/document/quotas/{position}"


def place_of_key(position: int, key: str) -> str:
    """Return the pointer to a value of the document. Source: RFC 6901."""
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"{place_of_quota(position)}/values/{escaped}"


def sent_entity(entity: ClientQuotaEntity) -> ClientQuotaEntity:
    """Return the entity that a set would be stored under: an address in its canonical text."""
    return canonical_entity(ClientQuotaAlteration(entity, (Op("", Decimal(1)),)), {})


def may_be_sent(alteration: ClientQuotaAlteration, stored: Quotas) -> bool:
    """Tell whether an alteration, on its own, breaks no rule and keeps its entity's spelling."""
    judged = judge([alteration], stored)
    return not judged.violations and judged.alterations[0].entity == alteration.entity


def broken_rules(
    alterations: Sequence[ClientQuotaAlteration], places: Sequence[OpPlaces], stored: Quotas
) -> Iterator[Violation]:
    """Yield every rule that the alterations of a plan break, at its place in the document."""
    if not alterations:
        return
    for violation in judge(alterations, stored).violations:
        pointer = _place(violation.pointer, places)
        yield replace(violation, pointer=pointer, index=None)


def _place(pointer: str, places: Sequence[OpPlaces]) -> str:
    found = _PLACE.fullmatch(pointer)
    if found is None or found[1] is None:
        return "/document/quotas"
    place = places[int(found[1])]
    if found[2] is not None:
        return place.ops[int(found[2])]
    return f"{place.entity}{found[3] or ''}"
