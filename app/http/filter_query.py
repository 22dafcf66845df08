"""The filter grammar: ``user=alice``, ``user:default``, ``user^=team-``."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from app.domain.errors import UnreadableRequestError, Violation
from app.domain.filters import ClientQuotaFilter, ClientQuotaFilterComponent, MatchType
from app.http.strict_json import shown

_END_OF_TYPE: Final = re.compile("[=:^]")

_WORDS: Final[Mapping[str, MatchType]] = {
    "default": MatchType.DEFAULT,
    "any": MatchType.SPECIFIED,
    "absent": MatchType.ABSENT,
}


def parse_filter(
    components: Sequence[str], *, strict: bool = False, parameter: str = "filter"
) -> ClientQuotaFilter:
    """Read the components of a filter; they are ANDed.

    The first of ``=``, ``:`` and ``^`` ends the type, so a name needs no escape of its own. Types
    are not judged here: ``filter_violations`` does.

    Args:
        components: Each as decoded from the query.
        strict: Only entities with exactly the filter's types.
        parameter: The query parameter to name in errors.

    Raises:
        UnreadableRequestError: A component outside the grammar; every one of them.
    """
    read = [parse_component(text) for text in components]
    readable = tuple(component for component in read if component is not None)
    if len(readable) < len(read):
        detail = f"The parameter {parameter} cannot be read."
        violations = unreadable_components(components, parameter)
        raise UnreadableRequestError(detail, violations=violations)
    return ClientQuotaFilter(readable, strict)


def unreadable_components(components: Sequence[str], parameter: str) -> list[Violation]:
    """Return a violation for each component outside the grammar."""
    return [
        Violation(parameter, "unreadable-filter", unreadable_detail(text))
        for text in components
        if parse_component(text) is None
    ]


def unreadable_detail(text: str) -> str:
    """Return the sentence for a component outside the grammar."""
    return f"{shown(text)} cannot be read. {GRAMMAR}"


GRAMMAR: Final = (
    "Write user=NAME, user^=BEGINNING, user:default, user:any, user:absent or user; likewise "
    "for client-id and ip."
)
"""What to write, for people."""


def parse_component(text: str) -> ClientQuotaFilterComponent | None:
    """Read one component; null if it is outside the grammar."""
    end = _END_OF_TYPE.search(text)
    if end is None:
        return ClientQuotaFilterComponent.of_entity_type(text) if text else None
    kind, mark, rest = text[: end.start()], end.group(), text[end.end() :]
    if mark == "=":
        return ClientQuotaFilterComponent.of_entity(kind, rest)
    if mark == ":":
        match_type = _WORDS.get(rest)
        return ClientQuotaFilterComponent(kind, match_type) if match_type else None
    if rest.startswith("="):
        return ClientQuotaFilterComponent(kind, MatchType.PREFIX, rest[1:])
    return None
