"""The rows of a look-up: the values of its levels for each name, at once or over time."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.jobs.resolve_levels import KINDS, SEVERAL_KINDS, case, kind_of_rule
from app.pipeline.jobs.resolve_versions import forever

LONE_KIND: Final = "lone_kind"
"""The number of the only kind of rules that a key has, or 0."""

MOST_VALUES: Final = "most_values"
"""How many values a level has at once, at most: more than one is an overlap."""

GROUP: Final = ("cluster_id", "key")


def states_at_once(versions: DataFrame, names: Sequence[str], levels: Sequence[int]) -> DataFrame:
    """Return the values of some levels that always hold: ``v1`` and so on, and ``MOST_VALUES``.

    Args:
        versions: As ``latest_versions`` returns them.
        names: That the entities of these levels have; without any there is ``LONE_KIND``, too.
        levels: Which.
    """
    counts = [f"count({_at_level(level, '1')})" for level in levels]
    most = f"greatest({', '.join(counts)})" if len(counts) > 1 else counts[0]
    values = [f"max({_at_level(level, '`value`')}) AS v{level}" for level in levels]
    told = [*values, f"{most} AS {MOST_VALUES}"]
    if names:
        return _own(versions, levels).groupBy(*GROUP, *names).agg(*map(sf.expr, told))
    kinds = [f"max({_is_kind(number)}) AS k{number}" for number in KINDS.values()]
    return _with_lone_kind(versions.groupBy(*GROUP).agg(*map(sf.expr, (*told, *kinds))))


def states_over_time(versions: DataFrame, names: Sequence[str], levels: Sequence[int]) -> DataFrame:
    """Cut time where any of the levels changes, and give each piece the values of all of them.

    Args:
        versions: As ``versions_in_history`` returns them.
        names: As for ``states_at_once``.
        levels: Which.

    Returns:
        The same without ``MOST_VALUES``, and ``since`` and ``until``.
    """
    own = _own(versions, levels) if names else versions
    group = (*GROUP, *names)
    kept = [f"`{name}`" for name in (*group, "level", "value")]
    begun = own.selectExpr(*kept, "valid_from AS since", "1 AS step")
    ended = own.where(f"valid_to < {forever()}")
    ended = ended.selectExpr(*kept, "valid_to AS since", "-1 AS step")
    changes = begun.unionByName(ended).groupBy(*group, "since")
    steps = [f"sum(step * {_is_kind(n)}) AS step{n}" for n in KINDS.values()]
    moments = changes.agg(*map(sf.expr, (*map(_change, levels), *steps)))
    until_now = Window.partitionBy(*group).orderBy("since")
    values = {
        f"v{level}": sf.last(f"change{level}", True).over(until_now)["value"] for level in levels
    }
    kinds = {f"k{n}": sf.sum(f"step{n}").over(until_now) for n in KINDS.values()}
    states = _with_lone_kind(moments.select(*group, "since", *_aliased({**values, **kinds})))
    return _pieces(states if not names else states.drop(LONE_KIND), group)


def _own(versions: DataFrame, levels: Sequence[int]) -> DataFrame:
    return versions.where(f"`level` IN ({', '.join(map(str, levels))})")


def _pieces(states: DataFrame, group: Sequence[str]) -> DataFrame:
    """Join moments between which nothing changes, and say when each piece ends."""
    in_turn = Window.partitionBy(*group).orderBy("since")
    values = sf.struct(*(name for name in states.columns if name not in (*group, "since")))
    marked = states.withColumn("state", values)
    former = sf.lag("state").over(in_turn)
    changed = marked.withColumn("same", former.eqNullSafe(sf.col("state")))
    kept = changed.where(~sf.col("same")).drop("same", "state")
    return kept.withColumn("until", sf.coalesce(sf.lead("since").over(in_turn), sf.expr(forever())))


def _with_lone_kind(states: DataFrame) -> DataFrame:
    kinds = [f"k{number}" for number in KINDS.values()]
    several = f"{' + '.join(f'CAST({kind} > 0 AS INT)' for kind in kinds)} <> 1"
    chosen = [(f"k{number} > 0", str(number)) for number in KINDS.values()]
    number = case([(several, str(SEVERAL_KINDS)), *chosen])
    return states.withColumn(LONE_KIND, sf.expr(number)).drop(*kinds)


def _change(level: int) -> str:
    """Return a moment's change of a level: a value, a null that ends one, or no struct at all."""
    at_level = f"`level` = {level}"
    begun = f"max({case([(f'{at_level} AND step > 0', '`value`')])})"
    struct = f"named_struct('value', {begun})"
    return f"{case([(f'max({at_level})', struct)])} AS change{level}"


def _at_level(level: int, what: str) -> str:
    return case([(f"`level` = {level}", what)])


def _is_kind(number: int) -> str:
    return f"CAST({kind_of_rule('`level`')} = {number} AS INT)"


def _aliased(columns: Mapping[str, Column]) -> Sequence[Column]:
    return [column.alias(name) for name, column in columns.items()]
