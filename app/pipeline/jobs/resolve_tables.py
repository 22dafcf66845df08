"""The look-ups of resolution: four small tables in which every level has its column.

The levels whose entities name the same types share a table: (user, client-id), user, client-id, or
neither. So an observation needs one look-up for each table instead of one for each level.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Slot
from app.pipeline.errors import UsageError
from app.pipeline.jobs.resolve_levels import KINDS, SEVERAL_KINDS, kind_of_rule
from app.pipeline.jobs.resolve_versions import forever, refuse_overlaps

LONE_KIND: Final = "lone_kind"

_GROUP: Final = ("cluster_id", "key")
MOST_VALUES: Final = "most_values"
"""How many values a level has at once, at most: more than one is an overlap."""


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

    def whole(self, *columns: Column) -> Column:
        """Return the hash of several columns, none of which may be null: nulls are skipped."""
        return (
            sf.xxhash64(*columns) if self.seed is None else sf.xxhash64(sf.lit(self.seed), *columns)
        )

    def of(self, names: Iterable[str]) -> Column:
        """Return the hash of cluster, key and names; each name is hashed once however many use it.

        Source: a hash of longs costs a fraction of one of strings.
        """
        return sf.xxhash64(
            self.whole(*map(sf.col, _GROUP)), *(self.whole(sf.col(n)) for n in names)
        )


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
    states = _states_over_time if history else _states_at_once
    frames = {}
    for names, levels in look_up_layout().items():
        table = states(versions, names, levels).withColumn("hash", hashing.of(names))
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
        one = _count(frame, names).withColumn("number", sf.lit(number))
        counts = one if counts is None else counts.unionByName(one)
    found = {row.number: row for row in counts.collect()} if counts is not None else {}
    for number, (names, frame) in enumerate(frames.items()):
        if found[number].owners > 1:
            _refuse_collision(frame, names)
    doubled = any(row.doubled for row in found.values())
    return {names: found[number].rows for number, names in enumerate(frames)}, doubled


def _count(frame: DataFrame, names: tuple[str, ...]) -> DataFrame:
    if MOST_VALUES in frame.columns:
        # A row is an owner here.
        owners, most = sf.count("*"), sf.max(MOST_VALUES)
    else:
        owners, most = sf.count_distinct(*_GROUP, *names), sf.lit(1)
    of_hash = frame.groupBy("hash").agg(
        owners.alias("owners"), sf.count("*").alias("n"), most.alias("most")
    )
    return of_hash.agg(
        sf.coalesce(sf.sum("n"), sf.lit(0)).alias("rows"),
        sf.coalesce(sf.max("owners"), sf.lit(0)).alias("owners"),
        sf.coalesce(sf.max("most") > 1, sf.lit(False)).alias("doubled"),
    )


def _refuse_collision(frame: DataFrame, names: tuple[str, ...]) -> None:
    columns = (*_GROUP, *names)
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


def _states_at_once(versions: DataFrame, names: Sequence[str], levels: Sequence[int]) -> DataFrame:
    counts = [sf.count(sf.when(sf.col("level") == level, 1)) for level in levels]
    most = (sf.greatest(*counts) if len(counts) > 1 else counts[0]).alias(MOST_VALUES)
    if not names:
        kinds = [sf.max(_is_kind(number)).alias(f"k{number}") for number in KINDS.values()]
        states = versions.groupBy(*_GROUP).agg(*map(_value, levels), *kinds, most)
        return _with_lone_kind(states)
    own = versions.where(sf.col("level").isin(list(levels)))
    return own.groupBy(*_GROUP, *names).agg(*map(_value, levels), most)


def _states_over_time(
    versions: DataFrame, names: Sequence[str], levels: Sequence[int]
) -> DataFrame:
    """Cut time where any of the levels changes, and give each piece the values of all of them."""
    own = versions if not names else versions.where(sf.col("level").isin(list(levels)))
    group = (*_GROUP, *names)
    begun = own.select(*group, "level", "value", sf.col("valid_from").alias("since"), _step(1))
    ended = own.where(sf.col("valid_to") < forever()).select(
        *group, "level", "value", sf.col("valid_to").alias("since"), _step(-1)
    )
    changes = begun.unionByName(ended).groupBy(*group, "since")
    steps = [sf.sum(sf.col("step") * _is_kind(n)).alias(f"step{n}") for n in KINDS.values()]
    moments = changes.agg(*map(_change, levels), *steps)
    until_now = Window.partitionBy(*group).orderBy("since")
    values = {
        f"v{level}": sf.last(f"change{level}", True).over(until_now)["value"] for level in levels
    }
    kinds = {f"k{n}": sf.sum(f"step{n}").over(until_now) for n in KINDS.values()}
    states = _with_lone_kind(moments.select(*group, "since", *_aliased({**values, **kinds})))
    return _pieces(states if not names else states.drop(LONE_KIND), group)


def _pieces(states: DataFrame, group: Sequence[str]) -> DataFrame:
    """Join moments between which nothing changes, and say when each piece ends."""
    in_turn = Window.partitionBy(*group).orderBy("since")
    values = sf.struct(*(name for name in states.columns if name not in (*group, "since")))
    marked = states.withColumn("state", values)
    former = sf.lag("state").over(in_turn)
    changed = marked.withColumn("same", former.eqNullSafe(sf.col("state")))
    kept = changed.where(~sf.col("same")).drop("same", "state")
    return kept.withColumn("until", sf.coalesce(sf.lead("since").over(in_turn), forever()))


def _with_lone_kind(states: DataFrame) -> DataFrame:
    kinds = {number: sf.col(f"k{number}") > 0 for number in KINDS.values()}
    several = sum((exists.cast("int") for exists in kinds.values()), sf.lit(0)) != 1
    number: Column = sf.when(several, sf.lit(SEVERAL_KINDS))
    for kind, exists in kinds.items():
        number = number.when(exists, sf.lit(kind))
    return states.withColumn(LONE_KIND, number).drop(*(f"k{kind}" for kind in kinds))


def _value(level: int) -> Column:
    return sf.max(sf.when(sf.col("level") == level, sf.col("value"))).alias(f"v{level}")


def _change(level: int) -> Column:
    """Return a moment's change of a level: a value, a null that ends one, or no struct at all."""
    at_level = sf.col("level") == level
    begun = sf.max(sf.when(at_level & (sf.col("step") > 0), sf.col("value")))
    ended = sf.max(at_level)
    return sf.when(ended, sf.struct(begun.alias("value"))).alias(f"change{level}")


def _is_kind(number: int) -> Column:
    return (kind_of_rule(sf.col("level")) == number).cast("int")


def _step(number: int) -> Column:
    return sf.lit(number).alias("step")


def _aliased(columns: Mapping[str, Column]) -> Sequence[Column]:
    return [column.alias(name) for name, column in columns.items()]
