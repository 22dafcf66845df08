"""The look-ups of resolution: four small tables in which every level has its column.

The levels whose entities name the same types share a table: (user, client-id), user, client-id, or
neither. So an observation needs one look-up for each table instead of one for each level.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Slot
from app.pipeline.errors import UsageError
from app.pipeline.jobs.resolve_states import (
    GROUP,
    MOST_VALUES,
    states_at_once,
    states_over_time,
)
from app.pipeline.jobs.resolve_versions import refuse_overlaps

_INTS: Final = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True)
class LookUp:
    """One table of values.

    Attributes:
        names: The columns of an observation, beside cluster and key, that it is looked up with.
        levels: The levels whose values it has, as the columns ``v1``, ``v2`` and so on.
        frame: ``hash`` (bigint, of what it is looked up with), ``cluster_id``, ``key``, the names,
            the values (double, null for none), and in history ``since`` and ``until``; without
            names also ``lone_kind`` (int, the number of the only kind of rules, or 0); without
            history ``most_values``.
        rows: How many it has.
    """

    names: tuple[str, ...]
    levels: tuple[int, ...]
    frame: DataFrame
    rows: int


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
        group = self.whole(*(f"`{name}`" for name in GROUP))
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


def build_look_ups(versions: DataFrame, hashing: Hashing, *, history: bool) -> Sequence[LookUp]:
    """Build, cache and check the look-ups.

    Args:
        versions: As ``latest_versions`` or ``versions_in_history`` returns them.
        hashing: Of the names.
        history: Whether values hold for a time only.

    Raises:
        UsageError: Versions overlap, or two entities have the same hash.
    """
    if history:
        refuse_overlaps(versions)
    states = states_over_time if history else states_at_once
    frames = {}
    for names, levels in look_up_layout().items():
        table = states(versions, names, levels).selectExpr("*", f"{hashing.of(names)} AS `hash`")
        frames[names] = table.persist(StorageLevel.MEMORY_AND_DISK)
    rows, doubled = _counted(frames)
    if doubled:
        refuse_overlaps(versions)
    layout = look_up_layout()
    return [LookUp(names, layout[names], frame, rows[names]) for names, frame in frames.items()]


def forget_look_ups(look_ups: Iterable[LookUp]) -> None:
    """Free the memory of look-ups that are used no more."""
    for look_up in look_ups:
        look_up.frame.unpersist()


def _counted(
    frames: Mapping[tuple[str, ...], DataFrame],
) -> tuple[Mapping[tuple[str, ...], int], bool]:
    """Return the rows of each look-up, and whether values overlap, all in one job.

    Raises:
        UsageError: Two entities have the same hash.
    """
    counts: DataFrame | None = None
    for number, (names, frame) in enumerate(frames.items()):
        one = _count(frame, names, number)
        counts = one if counts is None else counts.unionAll(one)
    found = {row.number: row for row in counts.collect()} if counts is not None else {}
    for number, (names, frame) in enumerate(frames.items()):
        if found[number].owners > 1:
            _refuse_collision(frame, names)
    doubled = any(row.doubled for row in found.values())
    return {names: found[number].rows for number, names in enumerate(frames)}, doubled


def _count(frame: DataFrame, names: tuple[str, ...], number: int) -> DataFrame:
    if MOST_VALUES in frame.columns:
        # A row is an owner here.
        owners, most = "count(*)", f"max({MOST_VALUES})"
    else:
        different = ", ".join(f"`{name}`" for name in (*GROUP, *names))
        owners, most = f"count(DISTINCT {different})", "1"
    of_hash = (f"{owners} AS owners", "count(*) AS n", f"{most} AS most")
    whole = (
        *(f"{number} AS number", "coalesce(sum(n), 0) AS `rows`"),
        *("coalesce(max(owners), 0) AS owners", "coalesce(max(most) > 1, false) AS doubled"),
    )
    return frame.groupBy("hash").agg(*map(sf.expr, of_hash)).selectExpr(*whole)


def _refuse_collision(frame: DataFrame, names: tuple[str, ...]) -> None:
    columns = (*GROUP, *names)
    pairs = frame.groupBy("hash").agg(
        sf.sort_array(sf.collect_set(sf.struct(*columns))).alias("all")
    )
    for found in pairs.where(sf.size("all") > 1).orderBy("hash").take(1):
        one, other = found["all"][:2]
        refuse_same_hash(tuple(one), tuple(other), "look-up hash")


def refuse_same_hash(one: object, other: object, what: str) -> None:
    """Say that two different things cannot be told apart by their hash.

    Raises:
        UsageError: Always.
    """
    message = f"{one} and {other} have the same {what}. Run again with another --hash-seed."
    raise UsageError(message)
