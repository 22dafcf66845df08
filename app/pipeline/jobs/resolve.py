"""The limit and the bucket of each observation, with one look-up for each small table."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Bucket
from app.pipeline.jobs.resolve_levels import (
    KINDS,
    bucket_kind,
    effective_level,
    first_hit,
    value_at,
)
from app.pipeline.jobs.resolve_tables import LONE_KIND, MOST_VALUES, Hashing, LookUp

BROADCAST_MAX: Final = 5_000_000
"""Rows of a look-up, about 500 MB, that are still sent to every worker whole."""


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
    names = {name: sf.coalesce(name, sf.lit("")) for name in ("user", "client_id")}
    hashes = {_hash_name(one): hashing.of(one.names) for one in look_ups}
    frame = observations.withColumns(names).withColumns(hashes)
    for look_up in look_ups:
        frame = _looked_up(frame, look_up, broadcast_max)
    values = {level: _value(one, level) for one in look_ups for level in one.levels}
    values = dict(sorted(values.items()))
    bare = next(one for one in look_ups if not one.names)
    frame = frame.withColumns({_level_name(level): value for level, value in values.items()})
    at_levels = {level: sf.col(_level_name(level)) for level in values}
    decided = {
        "level": effective_level(sf.col("user"), sf.col("client_id"), at_levels),
        "hit": first_hit(at_levels),
        LONE_KIND: sf.when(_same_names(bare), sf.col(_prefixed(bare, LONE_KIND))),
    }
    return _with_buckets(frame.withColumns(decided), hashing).select(
        *observations.columns,
        "level",
        value_at(sf.col("level"), at_levels).alias("limit"),
        "bucket_user",
        "bucket_client",
        "bucket_id",
    )


def _with_buckets(frame: DataFrame, hashing: Hashing) -> DataFrame:
    kind = bucket_kind(sf.col("level"), sf.col("hit"), sf.col(LONE_KIND))
    of_client, of_user = KINDS[Bucket.CLIENT_ID], KINDS[Bucket.USER]
    tags = {
        "bucket_user": sf.when(sf.col("kind") == of_client, "").otherwise(sf.col("user")),
        "bucket_client": sf.when(sf.col("kind") == of_user, "").otherwise(sf.col("client_id")),
    }
    return (
        frame.withColumn("kind", kind).withColumns(tags).withColumn("bucket_id", bucket_id(hashing))
    )


def bucket_id(hashing: Hashing) -> Column:
    """Return the id of a bucket from cluster_id, key, bucket_user and bucket_client."""
    return hashing.whole(*map(sf.col, ("cluster_id", "key", "bucket_user", "bucket_client")))


def _looked_up(frame: DataFrame, look_up: LookUp, broadcast_max: int) -> DataFrame:
    kept = look_up.frame.drop(MOST_VALUES)
    columns = {name: _prefixed(look_up, name) for name in kept.columns}
    table = kept.withColumnsRenamed(columns)
    # Beyond that size a table is sorted and merged by partitions: slower, but never out of memory.
    table = sf.broadcast(table) if look_up.rows <= broadcast_max else table.hint("merge")
    same = sf.col(_hash_name(look_up)) == sf.col(_prefixed(look_up, "hash"))
    if "since" in columns:
        since, until = sf.col(columns["since"]), sf.col(columns["until"])
        same &= (sf.col("ts") >= since) & (sf.col("ts") < until)
    return frame.join(table, same, "left")


def _value(look_up: LookUp, level: int) -> Column:
    """Return a looked-up value, if it is that of these very names and not only of their hash."""
    return sf.when(_same_names(look_up), sf.col(_prefixed(look_up, f"v{level}")))


def _same_names(look_up: LookUp) -> Column:
    same = sf.lit(True)
    for name in (*look_up.names, "key", "cluster_id"):
        same &= sf.col(name) == sf.col(_prefixed(look_up, name))
    return same


def _prefixed(look_up: LookUp, name: str) -> str:
    return "_".join(("by", *look_up.names, "is", name))


def _hash_name(look_up: LookUp) -> str:
    return "_".join(("hash_of", *look_up.names))


def _level_name(level: int) -> str:
    return f"value_of_level_{level}"
