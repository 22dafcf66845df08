"""The limit and the bucket of each observation, with one look-up for each small table."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Bucket
from app.pipeline.jobs.resolve_levels import (
    KINDS,
    bucket_kind,
    case,
    effective_level,
    first_hit,
    value_at,
)
from app.pipeline.jobs.resolve_states import LONE_KIND, MOST_VALUES
from app.pipeline.jobs.resolve_tables import Hashing, LookUp

BROADCAST_MAX: Final = 5_000_000
"""Rows of a look-up, about 500 MB, that are still sent to every worker whole."""

_NAMES: Final = ("user", "client_id")


def resolve(
    observations: DataFrame,
    look_ups: Sequence[LookUp],
    hashing: Hashing,
    *,
    broadcast_max: int = BROADCAST_MAX,
) -> DataFrame:
    """Add to each observation what limits it; rows in are rows out.

    Args:
        observations: Has cluster_id, key, user, client_id (null counts as '') and, where the
            look-ups are those of a history, ts.
        look_ups: Of ``build_look_ups``, whose hashing must be the same.
        hashing: Of the names.
        broadcast_max: Look-ups with more rows are joined by partitions instead.

    Returns:
        The same columns with level (int, 0 where nothing limits), limit (double, as stored; null
        for unlimited), bucket_user, bucket_client (the bucket's metric tags, not encoded) and
        bucket_id (bigint).

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1.
    """
    own = [f"`{name}`" for name in observations.columns]
    known = [f"coalesce({item}, '') AS {item}" if item[1:-1] in _NAMES else item for item in own]
    hashes = [f"{hashing.of(lookup.names)} AS {_hash_name(lookup)}" for lookup in look_ups]
    frame = observations.selectExpr(*known).selectExpr("*", *hashes)
    for look_up in look_ups:
        frame = _looked_up(frame, look_up, broadcast_max)
    values = {level: _value(lookup, level) for lookup in look_ups for level in lookup.levels}
    at_levels = {level: f"value_of_level_{level}" for level in sorted(values)}
    frame = frame.selectExpr("*", *(f"{values[key]} AS {at}" for key, at in at_levels.items()))
    bare = next(lookup for lookup in look_ups if not lookup.names)
    lone_kind = case([(_same_names(bare), _prefixed(bare, LONE_KIND))])
    frame = frame.selectExpr(
        "*",
        f"{effective_level('`user`', '`client_id`', at_levels)} AS `level`",
        f"{first_hit(at_levels)} AS hit",
        f"{lone_kind} AS {LONE_KIND}",
    )
    limit = value_at("`level`", at_levels)
    frame = frame.selectExpr(*own, "`level`", f"{limit} AS `limit`", f"{_kind()} AS kind")
    frame = frame.selectExpr(*own, "`level`", "`limit`", *_tags())
    return frame.selectExpr("*", f"{bucket_id(hashing)} AS bucket_id")


def _kind() -> str:
    return bucket_kind("`level`", "hit", LONE_KIND)


def _tags() -> Sequence[str]:
    of_client, of_user = KINDS[Bucket.CLIENT_ID], KINDS[Bucket.USER]
    user = case([(f"kind = {of_client}", "''")], "`user`")
    client = case([(f"kind = {of_user}", "''")], "`client_id`")
    return f"{user} AS bucket_user", f"{client} AS bucket_client"


def bucket_id(hashing: Hashing) -> str:
    """Return the id of a bucket from cluster_id, key, bucket_user and bucket_client."""
    return hashing.whole("`cluster_id`", "`key`", "bucket_user", "bucket_client")


def _looked_up(frame: DataFrame, look_up: LookUp, broadcast_max: int) -> DataFrame:
    kept = [name for name in look_up.frame.columns if name != MOST_VALUES]
    renamed = [f"`{name}` AS {_prefixed(look_up, name)}" for name in kept]
    table = look_up.frame.selectExpr(*renamed)
    # Beyond that size a table is sorted and merged by partitions: slower, but never out of memory.
    table = sf.broadcast(table) if look_up.rows <= broadcast_max else table.hint("merge")
    same = f"{_hash_name(look_up)} = {_prefixed(look_up, 'hash')}"
    if "since" in kept:
        since, until = _prefixed(look_up, "since"), _prefixed(look_up, "until")
        same += f" AND ts >= {since} AND ts < {until}"
    return frame.join(table, sf.expr(same), "left")


def _value(look_up: LookUp, level: int) -> str:
    """Return a looked-up value, if it is that of these very names and not only of their hash."""
    return case([(_same_names(look_up), _prefixed(look_up, f"v{level}"))])


def _same_names(look_up: LookUp) -> str:
    names = (*look_up.names, "key", "cluster_id")
    return " AND ".join(f"`{name}` = {_prefixed(look_up, name)}" for name in names)


def _prefixed(look_up: LookUp, name: str) -> str:
    return "_".join(("by", *look_up.names, "is", name))


def _hash_name(look_up: LookUp) -> str:
    return "_".join(("hash_of", *look_up.names))
