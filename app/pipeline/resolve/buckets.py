"""What each bucket did in each minute, and who it is."""

from collections.abc import Iterable
from datetime import date
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Slot
from app.pipeline.errors import UsageError
from app.pipeline.lake import Partition
from app.pipeline.resolve.precedence import NO_LEVEL, case, names_client_id, names_user
from app.pipeline.results import merge_buckets
from app.pipeline.tables import BUCKET_MINUTE

_MICRO: Final = 1_000_000
_OF_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_TAGS: Final = ("bucket_user", "bucket_client")
_NAME: Final = ("cluster_id", "key", "user", "client_id")
_MINUTE: Final = (*BUCKET_MINUTE.partitions, *BUCKET_MINUTE.order)
_RATES: Final = ("rate_avg", "rate_max", "throttle_ms_avg", "throttle_ms_max", "bytes_est")


def sum_minutes(resolved: DataFrame, *, one_source: bool, shares: int) -> DataFrame:
    """Sum up the members of each bucket in each minute on each broker.

    Sums are those of integers of 10^-6 units, so that no order of the rows shows in them.

    Args:
        resolved: ``OBSERVATION_MINUTE`` as ``resolve`` returns it.
        one_source: Whether all rows have one source and grain: then no name has two rows a minute.
        shares: Into how many files the buckets of a day are divided.

    Returns:
        The columns of ``BUCKET_MINUTE``, and ``rows``, how many observations are summed up. A task
        has all of the minutes of a day's share.
    """
    # Without a sample nobody contributed: the broker was scraped, and the rate is 0.
    name = sf.lit(1) if one_source else sf.xxhash64("user", "client_id")
    contributor = sf.when(sf.col("samples") > 0, name).alias("contributor")
    share = sf.pmod("bucket_id", sf.lit(shares)).alias("share")
    members = resolved.select(*_MINUTE, share, *_RATES, "limit", "level", contributor)
    divided = members.repartition("cluster_id", "dt", "share")
    # Few minutes of a bucket have several members: in the order of the files they are summed up
    # without a hash table of them all. The optimizer keeps that order for the sake of max_by.
    ordered = divided.sortWithinPartitions(*_MINUTE, "share")
    sums = ordered.groupBy(*_MINUTE, "share").agg(
        _sum_of("rate_avg"),
        _sum_of("rate_max"),
        (
            _total("throttle_ms_avg") / sf.nullif(sf.count("throttle_ms_avg"), sf.lit(0)) / _MICRO
        ).alias("throttle_ms_avg"),
        sf.max("throttle_ms_max").alias("throttle_ms_max"),
        sf.sum("bytes_est").alias("bytes_est"),
        # All members of a bucket have the same limit at a time: it follows from the tags.
        sf.max_by("limit", "level").alias("limit"),
        sf.max("level").alias("level"),
        (sf.count("contributor") if one_source else sf.size(sf.collect_set("contributor"))).alias(
            "contributors"
        ),
        sf.count(sf.lit(1)).alias("rows"),
    )
    return sums.drop("share")


def group_names(observations: DataFrame, *, by_minute: bool) -> DataFrame:
    """Return the names of observations, each with its first and last minute.

    Args:
        observations: The columns of ``OBSERVATION_MINUTE``.
        by_minute: Whether what limits a name depends on the minute: then each observation stays.

    Returns:
        cluster_id, key, user, client_id, ts, last_ts, rows (how many observations there are), and
        first_source and last_source, the same where all of them have one source and grain.
    """
    source = sf.xxhash64("grain", "source")
    keys = (*_NAME, "ts") if by_minute else _NAME
    first = () if by_minute else (sf.min("ts").alias("ts"),)
    return observations.groupBy(*keys).agg(
        *first,
        sf.max("ts").alias("last_ts"),
        sf.count(sf.lit(1)).alias("rows"),
        sf.min(source).alias("first_source"),
        sf.max(source).alias("last_source"),
    )


def name_buckets(resolved: DataFrame) -> DataFrame:
    """Say who spends from each bucket, and which entity's quota limits it.

    Args:
        resolved: ``group_names`` as ``resolve`` returns them.

    Returns:
        The columns of ``DIM_BUCKET``, and ``rows``, ``first_source`` and ``last_source``. Of a
        bucket that nothing limits (level 0) the names are '' and not default, as those of an
        entity without either type.
    """
    seen = resolved.groupBy(*_OF_BUCKET, "level", *_TAGS).agg(
        sf.min("ts").alias("first_seen"),
        sf.max("last_ts").alias("last_seen"),
        sf.sum("rows").alias("rows"),
        sf.min("first_source").alias("first_source"),
        sf.max("last_source").alias("last_source"),
    )
    user, client = names_user("`level`", Slot.NAMED), names_client_id("`level`", Slot.NAMED)
    entity = {
        "quota_user": case([(user, "bucket_user")], "''"),
        "quota_user_default": names_user("`level`", Slot.DEFAULT),
        "quota_client_id": case([(client, "bucket_client")], "''"),
        "quota_client_default": names_client_id("`level`", Slot.DEFAULT),
    }
    return seen.selectExpr("*", *(f"{item} AS {name}" for name, item in entity.items()))


class Resolved(NamedTuple):
    """How many observations there are, how many of them nothing limits, and their sources.

    ``one_source`` tells whether all of them have one source and grain.
    """

    rows: int
    unlimited: int
    one_source: bool


def count_resolved(buckets: DataFrame) -> Resolved:
    """Count observations, and make sure that no two buckets have the same id.

    Args:
        buckets: As ``name_buckets`` returns them.

    Raises:
        UsageError: Two have.
    """
    owners = sf.struct("cluster_id", "key", *_TAGS)
    by_id = buckets.groupBy("bucket_id").agg(
        sf.min(owners).alias("one"),
        sf.max(owners).alias("other"),
        sf.sum("rows").alias("rows"),
        sf.sum(sf.when(sf.col("level") == NO_LEVEL, sf.col("rows"))).alias("unlimited"),
        sf.min("first_source").alias("first"),
        sf.max("last_source").alias("last"),
    )
    collision = sf.when(sf.col("one") != sf.col("other"), sf.struct("one", "other"))
    sums = sf.sum("rows"), sf.sum("unlimited")
    counted = by_id.agg(*sums, sf.min("first").eqNullSafe(sf.max("last")), sf.min(collision))
    rows, unlimited, one_source, found = counted.collect()[0]
    if found is not None:
        message = (
            f"{tuple(found.one)} and {tuple(found.other)} have the same bucket_id, a hash: leave "
            "one of them out of the input."
        )
        raise UsageError(message)
    return Resolved(rows or 0, unlimited or 0, one_source)


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
    columns = earlier.columns
    return merge_buckets(buckets.select(*columns).unionByName(others.select(*columns)))


def _total(name: str) -> Column:
    return sf.sum(sf.rint(sf.col(name) * _MICRO).cast("bigint"))


def _sum_of(name: str) -> Column:
    return (_total(name) / _MICRO).alias(name)
