"""Filters: which entities a describe is about."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity, EntityType
from app.domain.errors import InvalidRequestError, Violation


class MatchType(StrEnum):
    """How a component matches.

    EXACT, DEFAULT and SPECIFIED are the broker's; SPECIFIED includes the default entity, as in
    the broker's code. The others are this service's, applied to the broker's answer: CONTAINS
    ignores case, and neither it nor PREFIX matches the default entity.
    """

    EXACT = "exact"
    DEFAULT = "default"
    SPECIFIED = "specified"
    PREFIX = "prefix"
    CONTAINS = "contains"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """One condition; ``match`` is text for EXACT, PREFIX and CONTAINS, else null.

    Source: ``org.apache.kafka.common.quota.ClientQuotaFilterComponent``.
    """

    entity_type: str
    match_type: MatchType
    match: str | None = None

    def __str__(self) -> str:
        """Return the component as ``GET /quotas`` reads it: ``user^=team-a-``."""
        return f"{self.entity_type}{_TEXTS[self.match_type]}{self.match or ''}"

    @classmethod
    def of_entity(cls, entity_type: str, name: str) -> Self:
        """Match entities with exactly this name."""
        return cls(entity_type, MatchType.EXACT, name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> Self:
        """Match the default entity of the type."""
        return cls(entity_type, MatchType.DEFAULT)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> Self:
        """Match every entity that has the type, the default included."""
        return cls(entity_type, MatchType.SPECIFIED)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the entity meets this condition."""
        names = entity.as_dict()
        if self.entity_type not in names:
            return self.match_type is MatchType.ABSENT
        name = names[self.entity_type]
        match self.match_type:
            case MatchType.EXACT:
                return name is not DEFAULT_NAME and name == self.match
            case MatchType.DEFAULT:
                return name is DEFAULT_NAME
            case MatchType.PREFIX:
                return name is not DEFAULT_NAME and name.startswith(self.match or "")
            case MatchType.CONTAINS:
                wanted = (self.match or "").casefold()
                return name is not DEFAULT_NAME and wanted in name.casefold()
            case MatchType.SPECIFIED:
                return True
            case MatchType.ABSENT:
                return False


_TEXTS: Final[Mapping[MatchType, str]] = {
    MatchType.EXACT: "=",
    MatchType.DEFAULT: ":default",
    MatchType.SPECIFIED: ":any",
    MatchType.PREFIX: "^=",
    MatchType.CONTAINS: "~=",
    MatchType.ABSENT: ":absent",
}
"""What stands between a component's type and its text."""


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Components, ANDed; ``strict`` means: no type beyond those of the components.

    No component and not strict is every entity; no component and strict is none, as in the
    protocol. ABSENT components do not count as types.
    """

    components: tuple[ClientQuotaFilterComponent, ...] = ()
    strict: bool = False

    @classmethod
    def of(cls, entity: ClientQuotaEntity) -> Self:
        """Match this entity alone."""
        component = ClientQuotaFilterComponent
        components = (
            component.of_default_entity(kind)
            if name is DEFAULT_NAME
            else component.of_entity(kind, name)
            for kind, name in entity.entries
        )
        return cls(tuple(components), strict=True)

    def for_broker(self) -> "ClientQuotaFilter":
        """Return the widest filter that a broker understands and that loses no match.

        PREFIX and CONTAINS become SPECIFIED, ABSENT is left out; ``matches`` narrows the answer.
        """
        return ClientQuotaFilter(
            tuple(
                ClientQuotaFilterComponent.of_entity_type(component.entity_type)
                if component.match_type in (MatchType.PREFIX, MatchType.CONTAINS)
                else component
                for component in self._present()
            ),
            self.strict,
        )

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the entity meets every condition. Source: ``ClientQuotasImage.describe``."""
        if self.strict and entity.types != {component.entity_type for component in self._present()}:
            return False
        if self.strict and not entity.types:
            return False
        return all(component.matches(entity) for component in self.components)

    def _present(self) -> Iterator[ClientQuotaFilterComponent]:
        return (
            component
            for component in self.components
            if component.match_type is not MatchType.ABSENT
        )


ALL_ENTITIES = ClientQuotaFilter()
"""The filter that describes everything, ip entities included."""


def filter_violations(quota_filter: ClientQuotaFilter, pointer: str = "filter") -> list[Violation]:
    """Return what a broker would refuse, in its order. Source: ``ClientQuotasImage.describe``."""
    violations = list(_component_violations(quota_filter, pointer))
    types = {
        component.entity_type
        for component in quota_filter.components
        if component.match_type is not MatchType.ABSENT
    }
    if EntityType.IP in types and types & {EntityType.USER, EntityType.CLIENT_ID}:
        violations.append(
            Violation(
                pointer,
                "invalid-filter-combination",
                "ip cannot be combined with user or client-id: no entity has both.",
                "INVALID_REQUEST",
            )
        )
    return violations


def check_filter(quota_filter: ClientQuotaFilter, pointer: str = "filter") -> None:
    """Refuse a filter that a broker would refuse.

    Raises:
        InvalidRequestError: With every violation, and the error that the broker gives.
    """
    violations = filter_violations(quota_filter, pointer)
    if violations:
        subject = "filter" if pointer == "filter" else f"{pointer} filter"
        raise InvalidRequestError(
            f"The {subject} breaks a rule of the broker.",
            kafka_error=violations[0].kafka_error,
            violations=violations,
        )


def _component_violations(quota_filter: ClientQuotaFilter, pointer: str) -> Iterator[Violation]:
    seen: set[str] = set()
    for component in quota_filter.components:
        kind = component.entity_type
        if not kind:
            yield Violation(
                pointer, "empty-entity-type", "An entity type is empty.", "INVALID_REQUEST"
            )
        elif kind not in ENTITY_TYPES:
            yield Violation(
                pointer,
                "unknown-entity-type",
                f"Unknown entity type {kind!r}; a broker knows user, client-id and ip.",
                "UNSUPPORTED_VERSION",
            )
        elif kind in seen:
            yield Violation(
                pointer,
                "repeated-entity-type",
                f"The entity type {kind} appears more than once; components are ANDed.",
                "INVALID_REQUEST",
            )
        seen.add(kind)
