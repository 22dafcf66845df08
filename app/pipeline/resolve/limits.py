"""The limit and the bucket of each observation, by four look-ups in one small table."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Bucket, Slot
from app.pipeline.resolve.look_ups import SINGLE_TYPE, Hashing
from app.pipeline.resolve.precedence import (
    BUCKET_TYPES,
    bucket_type,
    case,
    effective_level,
    first_hit,
    value_at,
)

Names = tuple[str, str]
"""The user and the client-id that something is looked up with, in SQL."""

_NAMES: Final = ("user", "client_id")
_NONE: Final = "''"
_NO_NAMES: Final = (_NONE, _NONE)


def resolve(
    observations: DataFrame,
    look_up: DataFrame,
    hashing: Hashing,
    *,
    broadcast: bool = True,
) -> DataFrame:
    """Add to each observation what limits it; rows in are rows out.

    Args:
        observations: Has cluster_id, key, user, client_id (null counts as '') and ts.
        look_up: Of ``build_look_up``, whose hashing must be the same.
        hashing: Of the names.
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
    hashes = [f"{hashing.of(*names)} AS {_column(names, 'of')}" for names in layout]
    frame = observations.selectExpr(*inputs).selectExpr("*", *hashes)
    for names in layout:
        frame = _look_up(frame, look_up, names, broadcast=broadcast)
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
    return frame.selectExpr("*", f"{bucket_id(hashing)} AS bucket_id")


def bucket_id(hashing: Hashing) -> str:
    """Return the id of a bucket from cluster_id, key, bucket_user and bucket_client."""
    return hashing.whole("`cluster_id`", "`key`", "bucket_user", "bucket_client")


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
    # The columns are the same each time, so that one broadcast serves all look-ups.
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
