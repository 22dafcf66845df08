"""The eight levels as Spark expressions, all made from the one table of the domain."""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Bucket, PrecedenceLevel, Slot
from app.domain.resolution_levels import applicable_levels as levels_for

NO_LEVEL: Final = 0
"""Of an observation that nothing limits."""

SEVERAL_KINDS: Final = 0
"""In place of the only kind of rules, where a key has several kinds or none."""

KINDS: Final[Mapping[Bucket, int]] = {kind: number for number, kind in enumerate(Bucket, 1)}
"""The kinds of rules and of buckets as numbers; a rule's kind is the bucket of its names."""

_DEFAULT_USER: Final = next(
    row.level for row in PRECEDENCE if (row.user, row.client_id) == (Slot.DEFAULT, Slot.ABSENT)
)
_NAMES: Final = tuple((user, client_id) for user in ("", "u") for client_id in ("", "c"))
"""One caller for each way in which a name may be empty."""


def level_of_entity(user: Column, client_id: Column) -> Column:
    """Return the level of a quota's entity from its slots; null where it has neither type."""
    return _case(
        ((user == int(row.user)) & (client_id == int(row.client_id)), row.level)
        for row in PRECEDENCE
    )


def first_hit(values: Mapping[int, Column]) -> Column:
    """Return the first level that has a value under the caller's names or their defaults, or 0."""
    return _first(values, [row.level for row in PRECEDENCE])


def effective_level(user: Column, client_id: Column, values: Mapping[int, Column]) -> Column:
    """Return the level that limits a caller; 0 where none does.

    Args:
        user: The user's name; empty for none.
        client_id: The client-id; empty for none.
        values: What is stored at each level under these names or their defaults; null for nothing.

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1.
    """
    cases = []
    for names in _NAMES:
        levels = levels_for(*names)
        chosen = _first(values, [row.level for row in PRECEDENCE if row.level in levels])
        if not names[0] and names[1]:
            # The default user's value selects a bucket without a name, where nothing is found.
            hidden = first_hit(values) == _DEFAULT_USER
            chosen = sf.when(hidden, sf.lit(NO_LEVEL)).otherwise(chosen)
        cases.append((_like(user, names[0]) & _like(client_id, names[1]), chosen))
    return _case(cases)


def value_at(level: Column, values: Mapping[int, Column]) -> Column:
    """Return the value of a level; null for level 0."""
    return _case((level == number, value) for number, value in values.items())


def bucket_kind(level: Column, hit: Column, lone_kind: Column) -> Column:
    """Return the number of the kind of bucket that a caller spends from.

    Args:
        level: What limits the caller.
        hit: The first level with a value, whether it limits or not.
        lone_kind: The only kind of rules that the key has; null or 0 for several or none.

    Source: ``quotaMetricTags``: a single kind of rules decides alone, several try the levels; no
    rule, or rules for other names only, leaves the client-id.
    """
    alone = sf.when(lone_kind != SEVERAL_KINDS, lone_kind)
    found = _of_row(hit, lambda row: KINDS[row.bucket])
    without = sf.coalesce(alone, found, sf.lit(KINDS[Bucket.CLIENT_ID]))
    return sf.when(level == NO_LEVEL, without).otherwise(
        _of_row(level, lambda row: KINDS[row.bucket])
    )


def kind_of_rule(level: Column) -> Column:
    """Return the number of a rule's kind from its level."""
    return _of_row(level, lambda row: KINDS[row.bucket])


def names_user(level: Column, slot: Slot) -> Column:
    """Tell whether the entity of a level has the user in a slot."""
    return level.isin([row.level for row in PRECEDENCE if row.user is slot])


def names_client_id(level: Column, slot: Slot) -> Column:
    """Tell whether the entity of a level has the client-id in a slot."""
    return level.isin([row.level for row in PRECEDENCE if row.client_id is slot])


def _of_row(level: Column, number: Callable[[PrecedenceLevel], int]) -> Column:
    return _case((level == row.level, number(row)) for row in PRECEDENCE)


def _first(values: Mapping[int, Column], levels: Iterable[int]) -> Column:
    cases = [(values[level].isNotNull(), level) for level in levels]
    return _case(cases).otherwise(NO_LEVEL) if cases else sf.lit(NO_LEVEL)


def _like(name: Column, example: str) -> Column:
    return name != "" if example else name == ""


def _case(cases: Iterable[tuple[Column, object]]) -> Column:
    (condition, result), *others = cases
    return reduce(lambda chain, case: chain.when(*case), others, sf.when(condition, result))
