"""The limit and the bucket of each observation, by four look-ups in one small table.

The levels whose entities name the same share a row, in which every level has its column: (user,
client-id), user, client-id, or neither, where a name is '' that an entity does not have. So an
observation needs four look-ups instead of one for each level.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Bucket, Slot
from app.pipeline.resolve.precedence import (
    BUCKET_TYPES,
    SEVERAL_TYPES,
    bucket_type,
    case,
    effective_level,
    first_hit,
    type_of_level,
    value_at,
)
from app.pipeline.resolve.versions import FOREVER_SQL

SINGLE_TYPE: Final = "single_rule_type"
"""The number of the only type of rules that a key has, or 0; in the row without names."""

_GROUP: Final = ("cluster_id", "key", "user", "client_id")
_LEVELS: Final = tuple(row.level for row in PRECEDENCE)


def hash_of(*columns: str) -> str:
    """Return the hash of columns as one long; none may be null: nulls are skipped."""
    return f"xxhash64({', '.join(columns)})"


def hash_of_names(user: str, client_id: str) -> str:
    """Return the hash of cluster, key and names; each name is hashed once however many use it.

    Source: a hash of longs costs a fraction of one of strings.
    """
    return hash_of(hash_of("`cluster_id`", "`key`"), hash_of(user), hash_of(client_id))


def build_look_up(versions: DataFrame, *, by_time: bool) -> DataFrame:
    """Return what is stored for each pair of names; in history, cut where any of it changes.

    Args:
        versions: As ``latest_versions`` or ``versions_in_history`` returns them.
        by_time: Whether they are those of the history.

    Returns:
        hash (bigint, of the following four), cluster_id, key, user, client_id ('' for none), since
        and until (timestamp, the latter exclusive), and found: a struct of the values ``v1`` to
        ``v8`` of the levels (double, null for none) and ``single_rule_type`` (int).
    """
    rows = _states_in_history(versions) if by_time else _states_of_now(versions)
    return rows.selectExpr(f"{hash_of_names('`user`', '`client_id`')} AS `hash`", "*")


_TWICE: Final = "stack(2, user, client_id, level, '', '', 0) AS (user, client_id, level)"
"""Each rule counts for its names, and as level 0 for the number of its type of the key."""


def _states_of_now(versions: DataFrame) -> DataFrame:
    """Return the values of each pair of names, from always to forever: one pass, by hashes."""
    always = ("valid_from AS since", "valid_to AS until")
    rules = versions.selectExpr(
        "cluster_id", "key", *always, "value", "level AS rule", "1 AS step", _TWICE
    )
    values = {f"v{level}": f"max({case([(f'level = {level}', 'value')])})" for level in _LEVELS}
    aggregates = {**values, **_steps()}
    states = rules.groupBy(*_GROUP, "since", "until").agg(
        *(sf.expr(item).alias(name) for name, item in aggregates.items())
    )
    found = sf.struct(*values, sf.expr(_single_type()).alias(SINGLE_TYPE)).alias("found")
    return states.select(*_GROUP, "since", found, "until")


def _states_in_history(versions: DataFrame) -> DataFrame:
    """Cut time where any value of a pair of names changes."""
    ends = "stack(2, valid_from, 1, valid_to, -1) AS (since, step)"
    changes = versions.selectExpr("*", ends).where(f"since < {FOREVER_SQL}")
    both = changes.selectExpr(
        "cluster_id", "key", "since", "step", "value", "level AS rule", _TWICE
    )
    aggregates = {f"change{level}": _change_of(level) for level in _LEVELS} | _steps()
    changed = both.groupBy(*_GROUP, "since").agg(
        *(sf.expr(item).alias(name) for name, item in aggregates.items())
    )
    until_now = Window.partitionBy(*_GROUP).orderBy("since")
    values = {
        f"v{level}": sf.last(f"change{level}", True).over(until_now)["value"] for level in _LEVELS
    }
    counts = {name: sf.sum(name).over(until_now) for name in _steps()}
    states = changed.withColumns(values | counts).withColumn(SINGLE_TYPE, sf.expr(_single_type()))
    found = sf.struct(*values, SINGLE_TYPE).alias("found")
    return _merge_equal(states.select(*_GROUP, "since", found))


def _merge_equal(states: DataFrame) -> DataFrame:
    """Join intervals between which nothing changes, and say when each ends."""
    in_turn = Window.partitionBy(*_GROUP).orderBy("since")
    same = sf.lag("found").over(in_turn).eqNullSafe(sf.col("found"))
    first = states.withColumn("same", same).where(~sf.col("same")).drop("same")
    until = sf.coalesce(sf.lead("since").over(in_turn), sf.expr(FOREVER_SQL))
    return first.withColumn("until", until)


def _change_of(level: int) -> str:
    """Return a level's change at a time: a value, a null that ends one, or no struct at all."""
    at_level = f"level = {level}"
    begun = f"max({case([(f'{at_level} AND step > 0', 'value')])})"
    return case([(f"max({at_level})", f"named_struct('value', {begun})")])


def _steps() -> dict[str, str]:
    """Return by how many the rules of each type change at a time."""
    of_rule = type_of_level("rule")
    return {
        f"step{number}": f"sum({case([(f'level = 0 AND {of_rule} = {number}', 'step')], '0')})"
        for number in BUCKET_TYPES.values()
    }


def _single_type() -> str:
    """Return the only type of which a key has rules, from the numbers of rules of each type."""
    types = [(f"step{number} > 0", str(number)) for number in BUCKET_TYPES.values()]
    present = " + ".join(f"CAST({has} AS INT)" for has, _ in types)
    return case([(f"{present} <> 1", str(SEVERAL_TYPES)), *types])


Names = tuple[str, str]
"""The user and the client-id that something is looked up with, in SQL."""

_NAMES: Final = ("user", "client_id")
_NONE: Final = "''"
_NO_NAMES: Final = (_NONE, _NONE)


def resolve(observations: DataFrame, look_up: DataFrame, *, broadcast: bool = True) -> DataFrame:
    """Add to each observation what limits it; rows in are rows out.

    Args:
        observations: Has cluster_id, key, user, client_id (null counts as '') and ts.
        look_up: Of ``build_look_up``.
        broadcast: Whether each worker gets the table whole; else it is sorted and merged by
            partitions, which is slower but never out of memory.

    Returns:
        The same columns with level (int, 0 where nothing limits), limit (double, as stored; null
        for unlimited), bucket_user, bucket_client (the bucket's metric tags, not encoded) and
        bucket_id (bigint).

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1.
    """
    own = [f"`{name}`" for name in observations.columns]
    inputs = [f"coalesce({item}, '') AS {item}" if item[1:-1] in _NAMES else item for item in own]
    layout = _look_up_layout()
    hashes = [f"{hash_of_names(*names)} AS {_column(names, 'of')}" for names in layout]
    frame = observations.selectExpr(*inputs).selectExpr("*", *hashes)
    for names, levels in layout.items():
        # A row without values is like no row; that without names has the type of rules, too.
        has_value = " OR ".join(f"found.v{level} IS NOT NULL" for level in levels)
        table = look_up if names == _NO_NAMES else look_up.where(has_value)
        frame = _look_up(frame, table, names, broadcast=broadcast)
    values = {
        level: f"{_column(names, 'found')}.v{level}"
        for names, levels in layout.items()
        for level in levels
    }
    single_type = f"{_column(_NO_NAMES, 'found')}.{SINGLE_TYPE}"
    # Each is a column of its own: in one expression the code would be too long to be compiled.
    frame = frame.selectExpr(
        *own,
        *(f"{values[level]} AS v{level}" for level in sorted(values)),
        f"{single_type} AS {SINGLE_TYPE}",
        "`user` <> '' AS has_user",
        "`client_id` <> '' AS has_client_id",
    )
    values = {level: f"v{level}" for level in sorted(values)}
    frame = frame.selectExpr("*", f"{first_hit(values)} AS hit")
    level = effective_level("has_user", "has_client_id", "hit", values)
    frame = frame.selectExpr("*", f"{level} AS `level`")
    frame = frame.selectExpr(
        *own,
        "`level`",
        f"{value_at('`level`', values)} AS `limit`",
        f"{bucket_type('`level`', 'hit', SINGLE_TYPE)} AS bucket_type",
    )
    frame = frame.selectExpr(*own, "`level`", "`limit`", *_tags())
    bucket_id = hash_of("`cluster_id`", "`key`", "bucket_user", "bucket_client")
    return frame.selectExpr("*", f"{bucket_id} AS bucket_id")


def hashes_of_names() -> Sequence[str]:
    """Return the hashes that the names of an observation are looked up with, one a look-up."""
    return [hash_of_names(*names) for names in _look_up_layout()]


def _tags() -> Sequence[str]:
    of_client, of_user = BUCKET_TYPES[Bucket.CLIENT_ID], BUCKET_TYPES[Bucket.USER]
    user = case([(f"bucket_type = {of_client}", "''")], "`user`")
    client = case([(f"bucket_type = {of_user}", "''")], "`client_id`")
    return f"{user} AS bucket_user", f"{client} AS bucket_client"


def _look_up_layout() -> Mapping[Names, Sequence[int]]:
    """Return the levels of each look-up by the names that it is looked up with."""
    layout: dict[Names, list[int]] = {}
    for row in PRECEDENCE:
        user = "`user`" if row.user is Slot.NAMED else _NONE
        client_id = "`client_id`" if row.client_id is Slot.NAMED else _NONE
        layout.setdefault((user, client_id), []).append(row.level)
    return layout


def _look_up(frame: DataFrame, look_up: DataFrame, names: Names, *, broadcast: bool) -> DataFrame:
    # Each look-up broadcasts what the optimizer leaves of the table: its levels of `found`, and the
    # rows that have '' where its names have it.
    columns = {name: _column(names, name) for name in look_up.columns}
    table = look_up.selectExpr(*(f"`{name}` AS {column}" for name, column in columns.items()))
    table = sf.broadcast(table) if broadcast else table.hint("merge")
    own = {"cluster_id": "cluster_id", "key": "key", "user": names[0], "client_id": names[1]}
    conditions = [
        f"{_column(names, 'of')} = {columns['hash']}",
        f"ts >= {columns['since']} AND ts < {columns['until']}",
        # In a form that is no key of a join: its only key is the hash, a long.
        *(f"{text} >= {columns[name]} AND {text} <= {columns[name]}" for name, text in own.items()),
    ]
    return frame.join(table, sf.expr(" AND ".join(conditions)), "left")


def _column(names: Names, name: str) -> str:
    return "_".join(("by", *(item.strip("`") for item in names if item != _NONE), "is", name))
