"""Client-quota entities: who a quota is for, names for people, names that mislead, filters."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, Self

DEFAULT_NAME: Final = None
"""The name of the default entity: null on the wire, never the text ``<default>``."""

DEFAULT: Final = "<default>"
"""How the default entity is printed. A name that is this text gets a backslash before it."""


class EntityType(StrEnum):
    """The entity types that a broker knows. Source: ``ClientQuotaEntity``."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


ENTITY_TYPES: Final = tuple(EntityType)
"""The types in the order in which answers are sorted: user, client-id, ip."""

ANY_TYPE: Final = "any"
"""Stands in a component that searches the names of every type; no type of a broker."""

_USER: Final = EntityType.USER.value
_CLIENT_ID: Final = EntityType.CLIENT_ID.value
_IP: Final = EntityType.IP.value
_DEFAULT_RANK: Final = "\0"
_NAME_RANK: Final = "\1"

SortKey = tuple[str, str, str]
"""For user, client-id and ip: empty where absent, U+0000 for the default, U+0001 and the name."""


class ClientQuotaEntity(NamedTuple):
    """One quota entity: each entity type that it names, with the name or ``DEFAULT_NAME``.

    An absent type does not belong to the entity; that differs from a type that is present with the
    default name. Entries are sorted by type, so equal entities are equal values and hash alike.
    Types are plain text: a request may name a type that no broker knows, and the answer says so. It
    is a tuple because tables of 100,000 of them are looked up: the interpreter itself compares and
    hashes it.

    Source: ``org.apache.kafka.common.quota.ClientQuotaEntity``.
    """

    entries: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, entries: Mapping[str, str | None]) -> Self:
        """Build an entity from a type-to-name mapping, in any order."""
        return cls(tuple(sorted((str(kind), name) for kind, name in entries.items())))

    @property
    def types(self) -> frozenset[str]:
        """The entity types that the entity names."""
        return frozenset(dict(self.entries))

    def __str__(self) -> str:
        """Return the entity for people; every sentence that names it has it like this."""
        return show_entity(dict(self.entries))

    def as_dict(self) -> dict[str, str | None]:
        """Return the entity as in JSON: type to name, null for the default."""
        return dict(self.entries)

    def canonical_json(self) -> str:
        """Return the canonical JSON: sorted types, no blanks."""
        return json.dumps(dict(self.entries), ensure_ascii=False, separators=(",", ":"))

    @property
    def key(self) -> str:
        """The ``entity_key``: unpadded URL-safe base64 of the canonical JSON in UTF-8."""
        raw = self.canonical_json().encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")

    @classmethod
    def from_key(cls, key: str) -> Self:
        """Return the entity that an ``entity_key`` names.

        Raises:
            ValueError: It is not the one key of an entity: not base64, not JSON, not canonical.
        """
        message = f"{key!r} is no entity_key"
        try:
            raw = base64.b64decode(f"{key}{'=' * (-len(key) % 4)}", b"-_", validate=True)
            names = json.loads(raw.decode())
            entity = cls.of(names)
            if entity.key == key and all(isinstance(name, str | None) for name in names.values()):
                return entity
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise ValueError(message) from None
        raise ValueError(message)

    def sort_key(self) -> SortKey:
        """Order by (user, client-id, ip): absent before default before names, by code point."""
        user = client_id = ip = ""
        for kind, name in self.entries:
            rank = _DEFAULT_RANK if name is DEFAULT_NAME else _NAME_RANK + name
            if kind == _USER:
                user = rank
            elif kind == _CLIENT_ID:
                client_id = rank
            elif kind == _IP:
                ip = rank
        return user, client_id, ip


def show_entity(entity: Mapping[str, str | None]) -> str:
    """Return ``{user=<default>, client-id=etl}`` for people, types in the order of answers."""
    kinds = [kind.value for kind in ENTITY_TYPES if kind in entity]
    kinds += [kind for kind in entity if kind not in ENTITY_TYPES]
    return f"{{{', '.join(f'{visible(kind)}={show_name(entity[kind])}' for kind in kinds)}}}"


def show_name(name: str | None) -> str:
    r"""Return a name for people, as ``--names`` reads it; nothing a terminal would act on."""
    if name is None:
        return DEFAULT
    if name == DEFAULT:
        return f"\\{name}"
    return visible(name.replace("\\", "\\\\").replace(",", "\\,"))


def visible(text: str) -> str:
    """Return text in which controls, marks of direction and the like are escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else escape_of(character) for character in text
    )


def escape_of(character: str) -> str:
    r"""Return ``\x1b``, ``\u202e`` or ``\U0001f600``, which YAML and ``--names`` read."""
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


_PREFIX: Final = "User:"
_DEFAULT: Final = re.compile(rf"\*+|\.[*+]|{DEFAULT}", re.IGNORECASE)
"""How other tools write the default: a wildcard, a regular expression, Kafka's own text for it."""

_PATTERN: Final = re.compile(r"\^|.*(?<!=)\*", re.DOTALL)
"""A regular expression, or a wildcard; that of a certificate (``CN=*.example``) is a name."""

_FIRST: Final = (_PREFIX, "^", "<", ".")
"""How each name begins that has a warning, no wildcard and no blank at its ends."""


@dataclass(frozen=True, slots=True)
class EntityWarning:
    """Why an entity is probably not what was intended: another tool means something else by it.

    A broker compares names as they are: it knows no pattern, no text for the default and no type
    before a user, and drops no blank. So a rule for ``User:alice``, ``*``, ``tenant-*`` or a name
    that a spreadsheet gave a blank is accepted and limits nobody.

    Attributes:
        code: ``user-prefix``, ``literal-default``, ``literal-pattern``, ``literal-blank``; in plans
            also ``drastic``, which is about a change.
        detail: A sentence.
    """

    entity: ClientQuotaEntity
    code: str
    detail: str


def is_misleading(kind: str, name: str) -> bool:
    """Tell whether a name of an entity type has a warning; fast for names that have none."""
    may_be = "*" in name or name.startswith(_FIRST) or name != name.strip()
    return may_be and _misreading(kind, name) is not None


def entity_warnings(entity: ClientQuotaEntity) -> tuple[EntityWarning, ...]:
    """Return the warnings about the names of an entity, by type; most entities have none."""
    return tuple(
        [
            EntityWarning(entity, *found)
            for kind, name in entity.entries
            if name and is_misleading(kind, name) and (found := _misreading(kind, name))
        ]
    )


def _misreading(kind: str, name: str) -> tuple[str, str] | None:
    """Return the code and the sentence about a name that another tool reads otherwise, or null."""
    text = visible(name)
    literal = f"this is the {kind} '{text}'"
    if kind == _USER and name.startswith(_PREFIX):
        return "user-prefix", (
            "A quota's user is the principal's name without its type: this is the principal "
            f"'User:{text}', and the user of '{text}' is '{text.removeprefix(_PREFIX)}'."
        )
    if _DEFAULT.fullmatch(name):
        return "literal-default", (
            f"Kafka matches names literally: {literal} alone, and not the default, which is "
            f"{{{kind}={DEFAULT}}}."
        )
    if _PATTERN.match(name):
        sentence = f"Kafka matches names literally and has no patterns: {literal} alone."
        return "literal-pattern", sentence
    if name != name.strip():
        return "literal-blank", (
            f"Kafka matches names literally, with the blanks at their ends: {literal}, and not "
            f"'{visible(name.strip())}'."
        )
    return None


def intended_entity(entity: ClientQuotaEntity) -> ClientQuotaEntity | None:
    """Return the entity that was probably intended.

    Null where there is none: a pattern stands for many, and ``User:`` alone for nobody.
    """
    names = {kind: _intended_name(kind, name) for kind, name in entity.entries}
    is_expressible = all(
        name is DEFAULT_NAME or (name and not is_misleading(kind, name))
        for kind, name in names.items()
    )
    return ClientQuotaEntity.of(names) if is_expressible else None


def _intended_name(kind: str, name: str | None) -> str | None:
    if name is DEFAULT_NAME:
        return DEFAULT_NAME
    bare = name.strip()
    if kind == _USER:
        bare = bare.removeprefix(_PREFIX).strip()
    return DEFAULT_NAME if _DEFAULT.fullmatch(bare) else bare


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    Attributes:
        principal: As Kafka prints it: ``User:alice``.
        host: The numeric address of the TCP peer, in Java's text form (IPv6 unabbreviated).
        authentication: The method, for the audit log; no secret.
    """

    principal: str
    host: str
    authentication: str


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

    @property
    def names_an_entity(self) -> bool:
        """Whether it means one entity of its type: that of a name, or the default."""
        return self in (MatchType.EXACT, MatchType.DEFAULT)


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """One condition; ``match`` is text for EXACT, PREFIX and CONTAINS, else null.

    With CONTAINS the type may be ``ANY_TYPE``: some name of the entity contains the text.

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

    @property
    def names_type(self) -> bool:
        """Whether entities that meet the condition have its type."""
        return self.match_type is not MatchType.ABSENT and self.entity_type != ANY_TYPE

    def alternatives(self) -> "tuple[ClientQuotaFilterComponent, ...]":
        """Return conditions on one type each, one of which must be met."""
        if self.entity_type != ANY_TYPE:
            return (self,)
        return tuple(replace(self, entity_type=kind.value) for kind in ENTITY_TYPES)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the entity meets this condition."""
        if self.entity_type == ANY_TYPE:
            return any(component.matches(entity) for component in self.alternatives())
        names = entity.as_dict()
        if self.entity_type not in names:
            return self.match_type is MatchType.ABSENT
        name = names[self.entity_type]
        if name is DEFAULT_NAME:
            return self.match_type in (MatchType.DEFAULT, MatchType.SPECIFIED)
        return self._matches_name(name)

    def _matches_name(self, name: str) -> bool:
        match self.match_type:
            case MatchType.EXACT:
                return name == self.match
            case MatchType.PREFIX:
                return name.startswith(self.match or "")
            case MatchType.CONTAINS:
                return (self.match or "").casefold() in name.casefold()
            case MatchType.SPECIFIED:
                return True
            case MatchType.DEFAULT | MatchType.ABSENT:
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
    protocol. Components that are ABSENT or of ``ANY_TYPE`` do not count as types.
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

        PREFIX and CONTAINS become SPECIFIED, what names no type is left out; ``matches`` narrows
        the answer.
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

    @property
    def names_an_entity(self) -> bool:
        """Whether a component names one entity of its type, or the default: few match that."""
        return any(component.match_type.names_an_entity for component in self.components)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the entity meets every condition. Source: ``ClientQuotasImage.describe``."""
        if self.strict and entity.types != {component.entity_type for component in self._present()}:
            return False
        if self.strict and not entity.types:
            return False
        return all(component.matches(entity) for component in self.components)

    def _present(self) -> Iterator[ClientQuotaFilterComponent]:
        return (component for component in self.components if component.names_type)


ALL_ENTITIES = ClientQuotaFilter()
"""The filter that describes everything, ip entities included."""
