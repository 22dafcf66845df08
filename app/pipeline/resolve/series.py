"""What limits each series in each hour, and the bucket that it spends from.

Names are looked up, never minutes; with ``--as-of history`` names and the times at which a quota of
theirs changed.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Slot
from app.pipeline.errors import UsageError
from app.pipeline.resolve.limits import hashes_of_names, resolve
from app.pipeline.resolve.precedence import NO_LEVEL, case, names_client_id, names_user
from app.pipeline.resolve.versions import ALWAYS
from app.pipeline.tables import DIM_BUCKET, SERIES_LIMIT

_SERIES: Final = ("cluster_id", "dt", "hour", "series_id")
_TAGS: Final = ("bucket_user", "bucket_client")
_START: Final = "timestamp_seconds(unix_date(dt) * 86400L + hour * 3600)"
_END: Final = "timestamp_seconds(unix_date(dt) * 86400L + hour * 3600 + 3600)"


def decide(
    series: DataFrame, look_up: DataFrame, *, by_time: bool, broadcast: bool = True
) -> DataFrame:
    """Find the limit and the bucket of each series in each hour.

    Args:
        series: The columns of ``SERIES``.
        look_up: Of ``build_look_up``.
        by_time: Whether what limits a name depends on the time.
        broadcast: Whether each worker gets the table whole.

    Returns:
        The columns of ``SERIES``, valid_from and valid_to (timestamp, within the hour, the latter
        exclusive), level (int), limit, bucket_user, bucket_client and bucket_id.
    """
    timed = series.withColumn("ts", sf.expr(_START))
    if by_time:
        timed = timed.unionByName(_changes(series, look_up, broadcast=broadcast))
    decided = resolve(timed, look_up, broadcast=broadcast).withColumnRenamed("ts", "valid_from")
    end = sf.expr(_END)
    if by_time:
        in_turn = Window.partitionBy(*_SERIES).orderBy("valid_from")
        end = sf.coalesce(sf.lead("valid_from").over(in_turn), end)
    return decided.withColumn("valid_to", end)


def _changes(series: DataFrame, look_up: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return the series of each hour with the times in it at which a quota of theirs changed."""
    changed = look_up.where(f"since > TIMESTAMP '{ALWAYS}'").select("hash", "since").distinct()
    changed = sf.broadcast(changed) if broadcast else changed
    named = series.withColumn("hash", sf.expr(f"explode(array({', '.join(hashes_of_names())}))"))
    within = f"since > {_START} AND since < {_END}"
    found = named.join(changed, "hash").where(within).withColumnRenamed("since", "ts")
    return found.drop("hash").dropDuplicates([*_SERIES, "ts"])


def limits_of(decided: DataFrame) -> DataFrame:
    """Return the columns of ``SERIES_LIMIT``, a row for each that ``decide`` returns."""
    return decided.select(*SERIES_LIMIT.columns)


def buckets_of(decided: DataFrame) -> DataFrame:
    """Return ``DIM_BUCKET``: who spends from each bucket, and which entity's quota limits it.

    Args:
        decided: As ``decide`` returns them.

    Returns:
        The columns of the table. Of a bucket that nothing limits (level 0) the names are '' and not
        default, as those of an entity without either type.
    """
    first = sf.greatest("first_seen", "valid_from").alias("first")
    last = sf.least("last_seen", sf.expr("valid_to - interval 1 minute")).alias("last")
    lived = decided.select("*", first, last).where("first < valid_to and last >= valid_from")
    seen = lived.groupBy(*DIM_BUCKET.partitions, "key", "bucket_id", "level", *_TAGS).agg(
        sf.min("first").alias("first_seen"), sf.max("last").alias("last_seen")
    )
    entity = quota_entity("`level`")
    named = seen.selectExpr("*", *(f"{item} AS {name}" for name, item in entity.items()))
    return named.select(*DIM_BUCKET.columns)


def quota_entity(level: str) -> Mapping[str, str]:
    """Return the columns that name the entity of a level, from the tags of the bucket."""
    user, client = names_user(level, Slot.NAMED), names_client_id(level, Slot.NAMED)
    return {
        "quota_user": case([(user, "bucket_user")], "''"),
        "quota_user_default": names_user(level, Slot.DEFAULT),
        "quota_client_id": case([(client, "bucket_client")], "''"),
        "quota_client_default": names_client_id(level, Slot.DEFAULT),
    }


class Decided(NamedTuple):
    """How many rows were decided, and how many of them nothing limits."""

    rows: int
    unlimited: int


def count_decided(decided: DataFrame) -> Decided:
    """Count what was decided, and make sure that no two buckets have the same id.

    Args:
        decided: As ``decide`` returns them.

    Raises:
        UsageError: Two have.
    """
    # Another hash, in another order, tells them apart without a comparison of texts.
    other = sf.xxhash64(*reversed(_TAGS), "key", "cluster_id")
    ids = decided.groupBy("bucket_id").agg(
        sf.min(other).alias("least"),
        sf.max(other).alias("most"),
        sf.count(sf.lit(1)).alias("rows"),
        sf.count_if(sf.col("level") == NO_LEVEL).alias("unlimited"),
    )
    doubled = sf.min(sf.when(sf.col("least") != sf.col("most"), sf.col("bucket_id")))
    rows, unlimited, found = ids.agg(sf.sum("rows"), sf.sum("unlimited"), doubled).collect()[0]
    if found is not None:
        _raise_collision(decided, found)
    return Decided(rows or 0, unlimited or 0)


def _raise_collision(decided: DataFrame, bucket_id: int) -> None:
    names = ["cluster_id", "key", *_TAGS]
    both = decided.where(sf.col("bucket_id") == bucket_id).select(*names).distinct().sort(*names)
    message = (
        f"{' and '.join(str(tuple(row)) for row in both.collect())} have the same bucket_id, a "
        "hash: leave one of them out of the input."
    )
    raise UsageError(message)
