"""The eight levels as expressions of Spark SQL, all made from the one table of the domain.

They are text: a driver builds hundreds of them, and each call on a ``Column`` is a call to the JVM.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from app.domain.resolution_levels import PRECEDENCE, Bucket, Slot
from app.domain.resolution_levels import applicable_levels as levels_for

NO_LEVEL: Final = 0
"""Of an observation that nothing limits."""

SEVERAL_TYPES: Final = 0
"""Stands for the only type of rules where a key has several types or none."""

BUCKET_TYPES: Final[Mapping[Bucket, int]] = {
    bucket: number for number, bucket in enumerate(Bucket, 1)
}
"""The types of rules and of buckets as numbers; a rule's type is the bucket of its names."""

_DEFAULT_USER: Final = next(
    row.level for row in PRECEDENCE if (row.user, row.client_id) == (Slot.DEFAULT, Slot.ABSENT)
)
_NAMES: Final = tuple((user, client_id) for user in ("", "u") for client_id in ("", "c"))
"""A caller for each combination of empty names."""


def level_of_entity(user: str, client_id: str) -> str:
    """Return the level of a quota's entity from its slots; null where it has neither type."""
    return case(
        (f"{user} = {int(row.user)} AND {client_id} = {int(row.client_id)}", str(row.level))
        for row in PRECEDENCE
    )


def first_hit(values: Mapping[int, str]) -> str:
    """Return the first level that has a value under the caller's names or their defaults, or 0."""
    return _first(values, [row.level for row in PRECEDENCE])


def effective_level(has_user: str, has_client_id: str, hit: str, values: Mapping[int, str]) -> str:
    """Return the level that limits a caller; 0 where none does.

    Args:
        has_user: Whether the user's name is not empty.
        has_client_id: Whether the client-id is not empty.
        hit: What ``first_hit`` returns.
        values: What is stored at each level under these names or their defaults; null for nothing.

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1.
    """
    cases = []
    for names in _NAMES:
        levels = levels_for(*names)
        chosen = _first(values, [row.level for row in PRECEDENCE if row.level in levels])
        if names[0] and names[1]:
            # All levels apply: the first with a value is the one.
            chosen = hit
        elif names[1]:
            # The default user's value selects a bucket without a name, where nothing is found.
            chosen = case([(f"{hit} = {_DEFAULT_USER}", str(NO_LEVEL))], chosen)
        cases.append((f"{_is(has_user, names[0])} AND {_is(has_client_id, names[1])}", chosen))
    return case(cases)


def value_at(level: str, values: Mapping[int, str]) -> str:
    """Return the value of a level; null for level 0."""
    return case((f"{level} = {number}", value) for number, value in values.items())


def bucket_type(level: str, hit: str, single_type: str) -> str:
    """Return the number of the type of bucket that a caller spends from.

    Args:
        level: What limits the caller.
        hit: The first level with a value, whether it limits or not.
        single_type: The only type of rules that the key has; null or 0 for several or none.

    Source: ``quotaMetricTags``: a single type of rules decides alone, several try the levels; no
    rule, or rules for other names only, leaves the client-id.
    """
    alone = case([(f"{single_type} <> {SEVERAL_TYPES}", single_type)])
    without = f"coalesce({alone}, {type_of_level(hit)}, {BUCKET_TYPES[Bucket.CLIENT_ID]})"
    return case([(f"{level} = {NO_LEVEL}", without)], type_of_level(level))


def type_of_level(level: str) -> str:
    """Return the number of a rule's type from its level; null of no level."""
    return case((f"{level} = {row.level}", f"{BUCKET_TYPES[row.bucket]}") for row in PRECEDENCE)


def names_user(level: str, slot: Slot) -> str:
    """Tell whether the entity of a level has the user in a slot."""
    return _is_one_of(level, [row.level for row in PRECEDENCE if row.user is slot])


def names_client_id(level: str, slot: Slot) -> str:
    """Tell whether the entity of a level has the client-id in a slot."""
    return _is_one_of(level, [row.level for row in PRECEDENCE if row.client_id is slot])


def case(cases: Iterable[tuple[str, str]], otherwise: str = "NULL") -> str:
    """Return the result of the first condition that holds."""
    whens = " ".join(f"WHEN {condition} THEN {result}" for condition, result in cases)
    return f"CASE {whens} ELSE {otherwise} END"


def _is_one_of(level: str, levels: Iterable[int]) -> str:
    return f"{level} IN ({', '.join(map(str, levels))})"


def _first(values: Mapping[int, str], levels: Iterable[int]) -> str:
    cases = [(f"{values[level]} IS NOT NULL", str(level)) for level in levels]
    return case(cases, str(NO_LEVEL)) if cases else str(NO_LEVEL)


def _is(claim: str, example: str) -> str:
    return claim if example else f"NOT {claim}"
