"""What each bucket did in each minute, and who it is."""

from collections.abc import Iterable
from datetime import date
from math import ceil
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Bucket, Slot
from app.pipeline.folders import Partition
from app.pipeline.jobs.resolve import bucket_id
from app.pipeline.jobs.resolve_levels import names_client_id, names_user
from app.pipeline.jobs.resolve_tables import Hashing, refuse_same_hash
from app.pipeline.jobs.resolve_tasks import TOLD_DDL, Task

_MICRO: Final = 1_000_000
_ROWS_OF_TASK: Final = 1_000_000
_OF_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_TAGS: Final = ("bucket_user", "bucket_client")


def from_one_source(observations: DataFrame) -> bool:
    """Tell whether all rows have one grain and source, so that a name has one row a minute."""
    return len(observations.select("grain", "source").distinct().take(2)) < 2


def bucket_minutes(
    resolved: DataFrame, rows: int, place: str, *, one_source: bool = False
) -> DataFrame:
    """Let tasks sum up the members of each bucket in each minute on each broker, and write them.

    How many files there are follows from the rows alone.

    Args:
        resolved: ``observation_minute`` as ``resolve`` returns it.
        rows: How many there are.
        place: The folder of ``BUCKET_MINUTE``.
        one_source: Whether no name has two rows a minute: then contributors are rows, and nobody
            needs to tell names apart.

    Returns:
        The columns of ``TOLD_DDL``, a row for each task that had any rows. Each use does the work.
    """
    names = () if one_source else ("user", "client_id")
    seconds = sf.unix_seconds("ts")
    members = resolved.select(
        "cluster_id",
        sf.unix_date("dt").alias("day"),
        (sf.floor(seconds / 60) - sf.unix_date("dt") * 1440).cast("int").alias("minute"),
        *("broker_id", "key", "bucket_id"),
        *(_micros(name).alias(name) for name in ("rate_avg", "rate_max", "throttle_ms_avg")),
        *("throttle_ms_max", "bytes_est", "limit", "level"),
        *(sf.coalesce(name, sf.lit("")).alias(name) for name in names),
    )
    tasks = max(1, ceil(rows / _ROWS_OF_TASK))
    own = ("cluster_id", "day", "key", "bucket_id", "broker_id")
    return members.repartition(tasks, *own).mapInArrow(Task(place), TOLD_DDL)


def bucket_names(observations: DataFrame, hashing: Hashing) -> DataFrame:
    """Return every bucket that the observed names could have.

    Args:
        observations: ``observation_minute``.
        hashing: Of the names.

    Returns:
        cluster_id, key, bucket_user, bucket_client, bucket_id; each once.
    """
    names = {name: sf.coalesce(name, sf.lit("")) for name in ("user", "client_id")}
    pairs = observations.withColumns(names).select("cluster_id", "key", *names).distinct()
    tags = {
        Bucket.USER_CLIENT_ID: (sf.col("user"), sf.col("client_id")),
        Bucket.USER: (sf.col("user"), sf.lit("")),
        Bucket.CLIENT_ID: (sf.lit(""), sf.col("client_id")),
    }
    buckets = sf.array(
        *(sf.struct(user.alias(_TAGS[0]), client.alias(_TAGS[1])) for user, client in tags.values())
    )
    exploded = pairs.select("cluster_id", "key", sf.inline(buckets))
    return exploded.distinct().withColumn("bucket_id", bucket_id(hashing))


def refuse_collisions(names: DataFrame) -> None:
    """Make sure that no two buckets have the same id.

    Args:
        names: As ``bucket_names`` returns them.

    Raises:
        UsageError: Two have.
    """
    owners = sf.struct("cluster_id", "key", *_TAGS)
    shared = names.groupBy("bucket_id").agg(
        sf.count("*").alias("n"), sf.min(owners).alias("one"), sf.max(owners).alias("other")
    )
    found = shared.where(sf.col("n") > 1).orderBy("bucket_id").head()
    if found is not None:
        refuse_same_hash(tuple(found.one), tuple(found.other), "bucket_id")


def dim_buckets(minutes: DataFrame, names: DataFrame) -> DataFrame:
    """Say who spends from each bucket, and which entity's quota limits it.

    Args:
        minutes: ``bucket_minute``.
        names: As ``bucket_names`` returns them, at least those of these minutes.

    Returns:
        ``dim_bucket``. Of a bucket that nothing limits (level 0) the names are '' and not default,
        as those of an entity without either type.
    """
    seen = minutes.groupBy(*_OF_BUCKET, "level").agg(
        sf.min("ts").alias("first_seen"), sf.max("ts").alias("last_seen")
    )
    level = sf.col("level")
    entity = {
        "quota_user": sf.when(names_user(level, Slot.NAMED), sf.col("bucket_user")).otherwise(""),
        "quota_user_default": names_user(level, Slot.DEFAULT),
        "quota_client_id": sf.when(
            names_client_id(level, Slot.NAMED), sf.col("bucket_client")
        ).otherwise(""),
        "quota_client_default": names_client_id(level, Slot.DEFAULT),
    }
    return seen.join(names, list(_OF_BUCKET)).withColumns(entity)


def with_earlier_buckets(
    buckets: DataFrame, earlier: DataFrame, days: Iterable[Partition]
) -> DataFrame:
    """Keep the buckets of days that a run is not about.

    Args:
        buckets: ``dim_bucket`` of the run.
        earlier: ``dim_bucket`` as it was published before.
        days: What the run replaces.
    """
    replaced: dict[str, list[date]] = {}
    for day in days:
        replaced.setdefault(day["cluster_id"], []).append(date.fromisoformat(day["dt"]))
    of_run = buckets.sparkSession.createDataFrame(
        list(replaced.items()), "cluster_id string, replaced array<date>"
    )
    lived = sf.sequence(sf.to_date("first_seen"), sf.to_date("last_seen"))
    others = earlier.join(sf.broadcast(of_run), "cluster_id").where(
        sf.size(sf.array_except(lived, sf.col("replaced"))) > 0
    )
    same = [name for name in earlier.columns if name not in {"first_seen", "last_seen"}]
    both = buckets.select(*earlier.columns).unionByName(others.select(*earlier.columns))
    return both.groupBy(*same).agg(
        sf.min("first_seen").alias("first_seen"), sf.max("last_seen").alias("last_seen")
    )


def _micros(name: str) -> Column:
    return sf.rint(sf.col(name) * _MICRO).cast("bigint")
