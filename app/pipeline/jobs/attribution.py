"""Whose incidents they are: the quota that limits, and who sent most when each began."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

PAIR: Final = "pair"
"""The grain of observations that tell user and client-id apart."""

_MOST_CONTRIBUTORS: Final = 5
_BROADCAST_MAX: Final = 1_000_000
"""Incidents whose first minutes are still sent to every worker whole, about 50 MB."""

_QUOTA: Final = (
    "quota_user",
    "quota_user_default",
    "quota_client_id",
    "quota_client_default",
)
_BROKER_MINUTE: Final = ("cluster_id", "key", "broker_id", "ts")
_TAGS: Final = ("bucket_user", "bucket_client")


def with_quotas(found: DataFrame, buckets: DataFrame | None) -> DataFrame:
    """Add the entity whose quota limits the bucket; nulls where the buckets' names are unknown.

    Args:
        found: Has ``cluster_id``, ``bucket_id`` and ``level``.
        buckets: The columns of ``DIM_BUCKET``.
    """
    if buckets is None:
        types = ("string", "boolean", "string", "boolean")
        nothing = zip(_QUOTA, types, strict=True)
        return found.withColumns({name: sf.lit(None).cast(kind) for name, kind in nothing})
    keys = ["cluster_id", "bucket_id", "level"]
    # Bucket and level name one entity; the last seen wins should they ever not.
    latest = buckets.groupBy(*keys).agg(sf.max(sf.struct("last_seen", *_QUOTA)).alias("quota"))
    return found.join(
        latest.select(*keys, *(sf.col(f"quota.{name}") for name in _QUOTA)), keys, "left"
    )


def with_contributors(
    found: DataFrame,
    minutes: DataFrame,
    buckets: DataFrame | None,
    pairs: DataFrame | None,
    rows: int = 0,
) -> DataFrame:
    """Add ``first_contributors``: who had the highest rates in the first minute of an incident.

    At most five, as a JSON list of ``{"user", "client-id", "rate_max"}`` in falling order; null
    where no observation tells user and client-id apart.

    Args:
        found: What ``incidents`` gives.
        minutes: The columns of ``BUCKET_MINUTE``.
        buckets: The columns of ``DIM_BUCKET``.
        pairs: The columns of ``OBSERVATION_MINUTE``.
        rows: How many incidents there are: many are joined by partitions.
    """
    if buckets is None or pairs is None:
        return found.withColumn("first_contributors", sf.lit(None).cast("string"))
    begun = found.select(
        *_BROKER_MINUTE[:3], "bucket_id", sf.col("start").alias("ts"), "incident_id"
    )
    first = begun.select(*_BROKER_MINUTE).distinct()
    if rows <= _BROADCAST_MAX:
        first = sf.broadcast(first)
    present = _with_tags(minutes.join(first, [*_BROKER_MINUTE], "left_semi"), buckets)
    members = _find_members(pairs.join(first, [*_BROKER_MINUTE], "left_semi"), present)
    contributors = (
        members.join(begun, [*_BROKER_MINUTE, "bucket_id"])
        .groupBy("cluster_id", "incident_id")
        .agg(_as_json().alias("first_contributors"))
    )
    return found.join(contributors, ["cluster_id", "incident_id"], "left")


def _with_tags(minutes: DataFrame, buckets: DataFrame) -> DataFrame:
    tags = buckets.select("cluster_id", "bucket_id", *_TAGS).distinct()
    return minutes.select(*_BROKER_MINUTE, "bucket_id").join(tags, ["cluster_id", "bucket_id"])


def _find_members(pairs: DataFrame, present: DataFrame) -> DataFrame:
    """Find the bucket that each pair spent from, without looking its quota up again.

    A pair's own bucket has no other member; beside a user's bucket, which exists where a user's
    quota or that of the default user has the key, its pairs never spend from a client-id's. So the
    first of the three that is present in that minute is it.
    """
    user, client, none = sf.col("user"), sf.col("client_id"), sf.lit("")
    tags = [(user, client), (user, none), (none, client)]
    candidates = sf.array(
        *(
            sf.struct(sf.lit(rank).alias("rank"), item.alias(_TAGS[0]), other.alias(_TAGS[1]))
            for rank, (item, other) in enumerate(tags)
        )
    )
    return (
        pairs.where(sf.col("grain") == PAIR)
        .select(*_BROKER_MINUTE, "user", "client_id", "rate_max", sf.inline(candidates))
        .join(present, [*_BROKER_MINUTE, *_TAGS])
        .groupBy(*_BROKER_MINUTE, "user", "client_id")
        .agg(
            sf.min_by("bucket_id", "rank").alias("bucket_id"),
            sf.max("rate_max").alias("rate_max"),
        )
    )


def _as_json() -> Column:
    by_rate = sf.struct((-sf.col("rate_max")).alias("falling"), "user", "client_id", "rate_max")
    first = sf.slice(sf.sort_array(sf.collect_list(by_rate)), 1, _MOST_CONTRIBUTORS)
    return sf.to_json(
        sf.transform(
            first,
            lambda item: sf.struct(
                item["user"].alias("user"),
                item["client_id"].alias("client-id"),
                item["rate_max"].alias("rate_max"),
            ),
        )
    )
