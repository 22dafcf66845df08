"""The eight levels over columns, all made from the one table of the domain."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np

from app.domain.resolution_levels import PRECEDENCE, Bucket, Slot, applicable_levels
from app.pipeline.usage.measures import Numbers

NO_LEVEL: Final = 0
"""Of an observation that nothing limits."""

SEVERAL_TYPES: Final = 0
"""Stands for the only type of rules where a key has several types or none."""

BUCKET_TYPES: Final[Mapping[Bucket, int]] = {
    bucket: number for number, bucket in enumerate(Bucket, 1)
}
"""The types of rules and of buckets as numbers; a rule's type is the bucket of its names."""

LEVELS: Final = tuple(row.level for row in PRECEDENCE)
"""In the order in which they are tried."""

Names = tuple[bool, bool]
"""Whether a level's entity names the user, and whether it names the client-id."""

NO_NAMES: Final[Names] = (False, False)

LEVELS_BY_NAMES: Final[Mapping[Names, Sequence[int]]] = {
    (user, client_id): [
        row.level
        for row in PRECEDENCE
        if ((row.user is Slot.NAMED), (row.client_id is Slot.NAMED)) == (user, client_id)
    ]
    for user, client_id in product((True, False), repeat=2)
}
"""The levels whose entities name the same: a caller needs four look-ups, not one for each level."""

_CALLERS: Final = tuple(product(("", "u"), ("", "c")))
"""A caller for each combination of empty names."""

_APPLIES: Final = np.array(
    [[level in applicable_levels(*names) for names in _CALLERS] for level in LEVELS]
)
_ONLY_CLIENT_ID: Final = _CALLERS.index(("", "c"))
_DEFAULT_USER: Final = next(
    row.level for row in PRECEDENCE if (row.user, row.client_id) == (Slot.DEFAULT, Slot.ABSENT)
)


TYPE_OF_LEVEL, USER_SLOT, CLIENT_ID_SLOT = (
    np.array([0, *values], np.int8)
    for values in zip(
        *((BUCKET_TYPES[row.bucket], row.user, row.client_id) for row in PRECEDENCE), strict=True
    )
)
"""By level; 0 at level 0, as of an entity without either type."""


def level_of_slots(user: Numbers, client_id: Numbers) -> Numbers:
    """Return the level of a quota's entity from its slots; 0 where it has neither type."""
    table = np.zeros((len(Slot), len(Slot)), np.int8)
    for row in PRECEDENCE:
        table[row.user, row.client_id] = row.level
    levels: Numbers = table[user, client_id]
    return levels


def decide_levels(
    has_value: Numbers, has_user: Numbers, has_client_id: Numbers, single_type: Numbers
) -> tuple[Numbers, Numbers]:
    """Return which level limits each caller, 0 for none, and the number of its type of bucket.

    ``has_value`` says whether something is stored at each of ``LEVELS`` (rows) under the names of a
    caller (columns) or their defaults, the next two whether these names are not empty.
    ``single_type`` is the only type of rules that the key has, or ``SEVERAL_TYPES``.

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1, and its ``quotaMetricTags``:
    a single type of rules decides alone, several try the levels; no rule, or rules for other names
    only, leaves the client-id.
    """
    caller = has_user * 2 + has_client_id
    hit, level = (
        np.select(list(found), [np.int8(level) for level in LEVELS], np.int8(NO_LEVEL))
        for found in (has_value, has_value & _APPLIES[:, caller])
    )
    # The default user's value selects a bucket without a name, where nothing is found.
    level[(caller == _ONLY_CLIENT_ID) & (hit == _DEFAULT_USER)] = NO_LEVEL
    conditions = [level != NO_LEVEL, single_type != SEVERAL_TYPES, hit != NO_LEVEL]
    types = [TYPE_OF_LEVEL[level], single_type, TYPE_OF_LEVEL[hit]]
    return level, np.select(conditions, types, BUCKET_TYPES[Bucket.CLIENT_ID])
