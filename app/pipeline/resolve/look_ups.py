"""The look-ups of resolution: four small tables in which every level has its column.

The levels whose entities name the same types share a table: (user, client-id), user, client-id, or
neither. So an observation needs one look-up for each table instead of one for each level.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Slot
from app.pipeline.resolve.precedence import (
    BUCKET_TYPES,
    SEVERAL_TYPES,
    case,
    type_of_level,
)
from app.pipeline.resolve.versions import FOREVER_SQL

SINGLE_TYPE: Final = "single_rule_type"
"""The number of the only type of rules that a key has, or 0."""

_GROUP: Final = ("cluster_id", "key")
_INTS: Final = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True)
class LookUp:
    """One table of values.

    Attributes:
        names: The columns of an observation, beside cluster and key, that it is looked up with.
        levels: The levels whose values it has, as the columns ``v1``, ``v2`` and so on.
        frame: ``hash`` (bigint, of what it is looked up with), ``cluster_id``, ``key``, the names,
            the values (double, null for none), and ``since`` and ``until`` (timestamp, the latter
            exclusive); without names also ``single_rule_type`` (int).
    """

    names: tuple[str, ...]
    levels: tuple[int, ...]
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class Hashing:
    """How names become one long; another seed gives other longs."""

    seed: int | None = None

    def whole(self, *columns: str) -> str:
        """Return the hash of several columns, none of which may be null: nulls are skipped."""
        return f"xxhash64({', '.join((*self._seeds(), *columns))})"

    def of(self, names: Iterable[str]) -> str:
        """Return the hash of cluster, key and names; each name is hashed once however many use it.

        Source: a hash of longs costs a fraction of one of strings.
        """
        group = self.whole(*(f"`{name}`" for name in _GROUP))
        return f"xxhash64({', '.join((group, *(self.whole(f'`{name}`') for name in names)))})"

    def _seeds(self) -> Sequence[str]:
        if self.seed is None:
            return ()
        # An int and a long have different hashes; and a literal of the least long would be none.
        return (f"CAST('{self.seed}' AS {'INT' if self.seed in _INTS else 'BIGINT'})",)


def look_up_layout() -> Mapping[tuple[str, ...], tuple[int, ...]]:
    """Return the levels of each look-up by the names that it is looked up with."""
    layout: dict[tuple[str, ...], tuple[int, ...]] = {}
    for row in PRECEDENCE:
        slots = (("user", row.user), ("client_id", row.client_id))
        names = tuple(name for name, slot in slots if slot is Slot.NAMED)
        layout[names] = (*layout.get(names, ()), row.level)
    return layout


def build_look_ups(versions: DataFrame, hashing: Hashing) -> Sequence[LookUp]:
    """Build the look-ups.

    Args:
        versions: As ``latest_versions`` or ``versions_in_history`` returns them.
        hashing: Of the names.
    """
    look_ups = []
    for names, levels in look_up_layout().items():
        intervals = _intervals(versions, names, levels)
        frame = intervals.selectExpr("*", f"{hashing.of(names)} AS `hash`")
        look_ups.append(LookUp(names, levels, frame))
    return look_ups


def _intervals(versions: DataFrame, names: Sequence[str], levels: Sequence[int]) -> DataFrame:
    """Cut time where any of the levels changes, and give each interval the values of all of them.

    Args:
        versions: As ``versions_in_history`` returns them.
        names: That the entities of these levels have; without any, ``SINGLE_TYPE`` is added.
        levels: Which.

    Returns:
        Cluster, key, names, the values, ``since`` and ``until``.
    """
    group = (*_GROUP, *names)
    own = versions.where(f"`level` IN ({', '.join(map(str, levels))})") if names else versions
    ends = "stack(2, valid_from, 1, valid_to, -1) AS (since, step)"
    changes = own.selectExpr(*group, "level", "value", ends)
    aggregates = {f"change{level}": _change_of(level) for level in levels}
    if not names:
        aggregates |= {f"step{n}": f"sum(step * {_is_type(n)})" for n in BUCKET_TYPES.values()}
    changed = (
        changes.where(f"since < {FOREVER_SQL}")
        .groupBy(*group, "since")
        .agg(*(sf.expr(item).alias(name) for name, item in aggregates.items()))
    )
    until_now = Window.partitionBy(*group).orderBy("since")
    values = [
        sf.last(f"change{level}", True).over(until_now)["value"].alias(f"v{level}")
        for level in levels
    ]
    counts = {f"step{n}": sf.sum(f"step{n}").over(until_now) for n in BUCKET_TYPES.values()}
    states = changed.withColumns({} if names else counts)
    single = [] if names else [sf.expr(_single_type()).alias(SINGLE_TYPE)]
    return _merge_equal(states.select(*group, "since", *values, *single), group)


def _merge_equal(states: DataFrame, group: Sequence[str]) -> DataFrame:
    """Join intervals between which nothing changes, and say when each ends."""
    in_turn = Window.partitionBy(*group).orderBy("since")
    state = sf.struct(*(name for name in states.columns if name not in group and name != "since"))
    same = sf.lag(state).over(in_turn).eqNullSafe(state)
    first = states.withColumn("same", same).where(~sf.col("same")).drop("same")
    until = sf.coalesce(sf.lead("since").over(in_turn), sf.expr(FOREVER_SQL))
    return first.withColumn("until", until)


def _change_of(level: int) -> str:
    """Return a level's change at a time: a value, a null that ends one, or no struct at all."""
    at_level = f"`level` = {level}"
    begun = f"max({case([(f'{at_level} AND step > 0', '`value`')])})"
    return case([(f"max({at_level})", f"named_struct('value', {begun})")])


def _is_type(number: int) -> str:
    return f"CAST({type_of_level('`level`')} = {number} AS INT)"


def _single_type() -> str:
    """Return the only type of which a key has rules, from the numbers of rules of each type."""
    types = [(f"step{number} > 0", str(number)) for number in BUCKET_TYPES.values()]
    present = " + ".join(f"CAST({has} AS INT)" for has, _ in types)
    return case([(f"{present} <> 1", str(SEVERAL_TYPES)), *types])
