"""Names that Kafka takes literally, and that another tool uses for something else.

A broker compares names as they are: it knows no pattern, no text for the default and no type before
a user, and drops no blank. So a rule for ``User:alice``, ``*``, ``tenant-*`` or a name that a
spreadsheet gave a blank is accepted and limits nobody.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.entities import DEFAULT, DEFAULT_NAME, ClientQuotaEntity, EntityType, visible

USER_PREFIX: Final = "user-prefix"
LITERAL_DEFAULT: Final = "literal-default"
LITERAL_PATTERN: Final = "literal-pattern"
LITERAL_BLANK: Final = "literal-blank"

_PREFIX: Final = "User:"
_USER: Final = EntityType.USER.value
_DEFAULT: Final = re.compile(rf"\*+|\.[*+]|{DEFAULT}", re.IGNORECASE)
"""How other tools write the default: a wildcard, a regular expression, Kafka's own text for it."""

_PATTERN: Final = re.compile(r"\^|.*(?<!=)\*", re.DOTALL)
"""A regular expression, or a wildcard; that of a certificate (``CN=*.example``) is a name."""

_FIRST: Final = (_PREFIX, "^", "<", ".")
"""How each name begins that has a warning, no wildcard and no blank at its ends."""


@dataclass(frozen=True, slots=True)
class EntityWarning:
    """Why an entity is probably not what was intended.

    Attributes:
        code: ``user-prefix``, ``literal-default``, ``literal-pattern`` or ``literal-blank``.
        detail: A sentence.
    """

    entity: ClientQuotaEntity
    code: str
    detail: str


def is_misleading(kind: str, name: str) -> bool:
    """Tell whether a name of an entity type has a warning; fast for names that have none."""
    may_be = "*" in name or name.startswith(_FIRST) or name != name.strip()
    return may_be and _code_of(kind, name) is not None


def entity_warnings(entity: ClientQuotaEntity) -> tuple[EntityWarning, ...]:
    """Return the warnings about the names of an entity, by type; most entities have none."""
    return tuple(
        [
            EntityWarning(entity, code, _detail(code, kind, name))
            for kind, name in entity.entries
            if name and is_misleading(kind, name) and (code := _code_of(kind, name))
        ]
    )


def intended_entity(entity: ClientQuotaEntity) -> ClientQuotaEntity | None:
    """Return the entity that was probably intended.

    Null where there is none: a pattern stands for many, and ``User:`` alone for nobody.
    """
    names = dict(_intended_names(entity.as_dict()))
    is_expressible = all(
        name is DEFAULT_NAME or (name and _code_of(kind, name) is None)
        for kind, name in names.items()
    )
    return ClientQuotaEntity.of(names) if is_expressible else None


def _intended_names(names: Mapping[str, str | None]) -> Iterator[tuple[str, str | None]]:
    for kind, name in names.items():
        bare = name
        if bare is not DEFAULT_NAME and kind == _USER:
            bare = bare.strip().removeprefix(_PREFIX)
        bare = bare if bare is DEFAULT_NAME else bare.strip()
        is_default = bare is DEFAULT_NAME or _DEFAULT.fullmatch(bare) is not None
        yield kind, DEFAULT_NAME if is_default else bare


def _code_of(kind: str, name: str) -> str | None:
    if kind == _USER and name.startswith(_PREFIX):
        return USER_PREFIX
    if _DEFAULT.fullmatch(name):
        return LITERAL_DEFAULT
    if _PATTERN.match(name):
        return LITERAL_PATTERN
    return LITERAL_BLANK if name != name.strip() else None


def _detail(code: str, kind: str, name: str) -> str:
    text = visible(name)
    if code == USER_PREFIX:
        return (
            "A quota's user is the principal's name without its type: this is the principal "
            f"'User:{text}', and the user of '{text}' is '{text.removeprefix(_PREFIX)}'."
        )
    if code == LITERAL_DEFAULT:
        return (
            f"Kafka matches names literally: this is the {kind} '{text}' alone, and not the "
            f"default, which is {{{kind}={DEFAULT}}}."
        )
    if code == LITERAL_BLANK:
        return (
            f"Kafka matches names literally, with the blanks at their ends: this is the {kind} "
            f"'{text}', and not '{visible(name.strip())}'."
        )
    return f"Kafka matches names literally and has no patterns: this is the {kind} '{text}' alone."
