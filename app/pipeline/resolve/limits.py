"""The limit and the bucket of each observation, with one look-up for each small table."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Bucket
from app.pipeline.resolve.look_ups import SINGLE_TYPE, Hashing, LookUp
from app.pipeline.resolve.precedence import (
    BUCKET_TYPES,
    bucket_type,
    case,
    effective_level,
    first_hit,
    value_at,
)

_NAMES: Final = ("user", "client_id")


def resolve(
    observations: DataFrame,
    look_ups: Sequence[LookUp],
    hashing: Hashing,
    *,
    broadcast: bool = True,
) -> DataFrame:
    """Add to each observation what limits it; rows in are rows out.

    Args:
        observations: Has cluster_id, key, user, client_id (null counts as '') and ts.
        look_ups: Of ``build_look_ups``, whose hashing must be the same.
        hashing: Of the names.
        broadcast: Whether each worker gets the look-ups whole; else they are sorted and merged by
            partitions, which is slower but never out of memory.

    Returns:
        The same columns with level (int, 0 where nothing limits), limit (double, as stored; null
        for unlimited), bucket_user, bucket_client (the bucket's metric tags, not encoded) and
        bucket_id (bigint).

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1.
    """
    own = [f"`{name}`" for name in observations.columns]
    known = [f"coalesce({item}, '') AS {item}" if item[1:-1] in _NAMES else item for item in own]
    hashes = [f"{hashing.of(look_up.names)} AS {_hash_name(look_up)}" for look_up in look_ups]
    frame = observations.selectExpr(*known).selectExpr("*", *hashes)
    for look_up in look_ups:
        frame = _look_up(frame, look_up, broadcast=broadcast)
    values = {
        level: _prefixed(look_up, f"v{level}") for look_up in look_ups for level in look_up.levels
    }
    values = dict(sorted(values.items()))
    without_names = next(look_up for look_up in look_ups if not look_up.names)
    frame = frame.selectExpr(
        "*",
        f"{effective_level('`user`', '`client_id`', values)} AS `level`",
        f"{first_hit(values)} AS hit",
    )
    single_type = _prefixed(without_names, SINGLE_TYPE)
    frame = frame.selectExpr(
        *own,
        "`level`",
        f"{value_at('`level`', values)} AS `limit`",
        f"{bucket_type('`level`', 'hit', single_type)} AS bucket_type",
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


def _look_up(frame: DataFrame, look_up: LookUp, *, broadcast: bool) -> DataFrame:
    renamed = [f"`{name}` AS {_prefixed(look_up, name)}" for name in look_up.frame.columns]
    table = look_up.frame.selectExpr(*renamed)
    table = sf.broadcast(table) if broadcast else table.hint("merge")
    since, until = _prefixed(look_up, "since"), _prefixed(look_up, "until")
    conditions = [
        f"{_hash_name(look_up)} = {_prefixed(look_up, 'hash')}",
        f"ts >= {since} AND ts < {until}",
        *(_is_same(f"`{name}`", _prefixed(look_up, name)) for name in look_up.names),
        *(_is_same(f"`{name}`", _prefixed(look_up, name)) for name in ("key", "cluster_id")),
    ]
    return frame.join(table, sf.expr(" AND ".join(conditions)), "left")


def _is_same(text: str, other: str) -> str:
    """Compare texts in a form that is no key of a join: its only key is the hash, a long."""
    return f"{text} >= {other} AND {text} <= {other}"


def _prefixed(look_up: LookUp, name: str) -> str:
    return "_".join(("by", *look_up.names, "is", name))


def _hash_name(look_up: LookUp) -> str:
    return "_".join(("hash_of", *look_up.names))
