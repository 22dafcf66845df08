"""Who was seen in which hour: the series of the points, and what ingest counts of them.

One aggregation serves all: rows by name, broker and hour, with a bit for each minute.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP
from app.pipeline.errors import UsageError
from app.pipeline.lake import Partition, in_order
from app.pipeline.tables import SERIES

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 3_600_000_000
ATTRIBUTES: Final = (RATE, THROTTLE, TOKENS, UP)
FAILED: Final = f"attribute = '{UP}' and value = 0"
"""A scrape that failed: the broker did not report in it."""

NAMES: Final = ("key", "user", "client_id")
_HOUR: Final = ("cluster_id", "hour_number")
_BIT: Final = f"shiftleft(1L, cast(ts % {HOUR_US} div {MINUTE_US} as int))"


def series_id(grain: str) -> Column:
    """Return the hash of cluster, key, names and grain; each text is hashed once."""
    names = "xxhash64(cluster_id, key), xxhash64(user), xxhash64(client_id)"
    return sf.expr(f"xxhash64({names}, xxhash64('{grain}'))")


def count_names(points: DataFrame) -> DataFrame:
    """Count points by name, broker and hour, those that cannot be used by their problem.

    Args:
        points: The columns of ``POINTS_DDL``.

    Returns:
        problem, cluster_id, broker_id, hour_number (hours of the epoch) and the names; rows, and
        how many of them are of a rate or a throttle time (with_rate) or of ``up`` (ups); the bits
        of the minutes in which the broker reported (reported), the name had a minute (seen), or a
        scrape succeeded (scraped); first and last, in microseconds, and the least and the greatest
        hash of what the input calls the cluster.
    """
    cluster = sf.when(sf.col("cluster") != "", sf.xxhash64("cluster"))
    # Of a throttle time that is NaN there is no minute; no name has `up` alone.
    with_rate = f"(attribute = '{RATE}' or attribute = '{THROTTLE}' and value is not null)"
    hour = sf.expr(f"cast(ts div {HOUR_US} as int)").alias("hour_number")
    return points.groupBy("problem", "cluster_id", "broker_id", hour, *NAMES).agg(
        sf.count(sf.lit(1)).alias("rows"),
        sf.count_if(sf.expr(with_rate)).alias("with_rate"),
        sf.count_if(sf.col("attribute") == UP).alias("ups"),
        sf.bit_or(sf.expr(f"if({FAILED}, 0L, {_BIT})")).alias("reported"),
        sf.bit_or(sf.expr(f"if({with_rate}, {_BIT}, 0L)")).alias("seen"),
        sf.bit_or(sf.expr(f"if(attribute = '{UP}' and value != 0, {_BIT}, 0L)")).alias("scraped"),
        sf.min("ts").alias("first"),
        sf.max("ts").alias("last"),
        sf.min(cluster).alias("first_cluster"),
        sf.max(cluster).alias("last_cluster"),
    )


def series_of(names: DataFrame, grain: str) -> DataFrame:
    """Return the series of each hour, in the order of ``SERIES``.

    Args:
        names: As ``count_names`` returns them.
        grain: Of the input.

    Returns:
        The columns of ``SERIES`` that points tell. A task has all of an hour.
    """
    seen = names.where("problem is null and seen != 0").withColumns(hour_columns())
    by_hour = seen.repartition(*SERIES.partitions)
    minute = "timestamp_micros({0} - {0} % " + f"{MINUTE_US})"
    found = by_hour.groupBy(*SERIES.partitions, *NAMES).agg(
        sf.min("first").alias("first"), sf.max("last").alias("last")
    )
    columns = {
        "series_id": series_id(grain),
        "grain": sf.lit(grain),
        "first_seen": sf.expr(minute.format("first")),
        "last_seen": sf.expr(minute.format("last")),
    }
    return (
        found.withColumns(columns)
        .drop("first", "last")
        .sortWithinPartitions(*SERIES.partitions, *SERIES.order)
    )


def hour_columns() -> dict[str, Column]:
    """Return ``dt`` and ``hour`` of ``hour_number``."""
    return {
        "dt": sf.expr("date_from_unix_date(hour_number div 24)"),
        "hour": sf.expr("hour_number % 24"),
    }


def partition_values(rows: DataFrame) -> list[Partition]:
    """Return few rows of cluster_id, dt and hour as partitions."""
    texts = rows.select(*(sf.col(name).cast("string") for name in SERIES.partitions))
    return in_order(row.asDict() for row in texts.collect())


def require_own_ids(series: DataFrame) -> None:
    """Make sure that no two series of an hour have the same id: by hour and id they are joined.

    Args:
        series: As ``series_of`` returns them.

    Raises:
        UsageError: Two have.
    """
    # Another hash, in another order, tells them apart without a comparison of texts.
    other = sf.xxhash64("client_id", "user", "key", "cluster_id")
    ids = series.groupBy(*SERIES.partitions, "series_id").agg(
        sf.min(other).alias("least"), sf.max(other).alias("most")
    )
    # A task has all of an hour: nothing is divided anew.
    found = ids.where("least != most").select("series_id").collect()
    if not found:
        return
    names = ["cluster_id", *NAMES]
    both = series.where(sf.col("series_id") == min(found)[0]).select(*names).distinct().sort(*names)
    message = (
        f"{' and '.join(str(tuple(row)) for row in both.collect())} have the same series_id, a "
        "hash: leave one of them out of the input."
    )
    raise UsageError(message)


def idle_minutes(names: DataFrame, grain: str) -> DataFrame:
    """Return the minutes in which a broker was scraped and a name of the hour had no sample.

    The rate was 0: a broker forgets what has been idle for an hour.

    Args:
        names: As ``count_names`` returns them.
        grain: Of the input.

    Returns:
        The columns of ``RATE_MINUTE``, with ``samples`` 0. A task has all of an hour.
    """
    of_broker = [*_HOUR, "broker_id"]
    fine = names.where("problem is null")
    scraped = fine.groupBy(*of_broker).agg(sf.bit_or("scraped").alias("scraped"))
    seen = fine.where("seen != 0").select(*of_broker, series_id(grain).alias("series_id"), "seen")
    idle = seen.join(sf.broadcast(scraped.where("scraped != 0")), of_broker)
    bits = "filter(sequence(0, 59), n -> bit_get(scraped & ~seen, n) = 1)"
    rows = idle.select(*of_broker, "series_id", sf.expr(f"explode({bits}) as number"))
    return rows.withColumns(hour_columns()).select(
        *("cluster_id", "dt", "hour", "series_id", "broker_id"),
        sf.expr("timestamp_seconds(hour_number * 3600L + number * 60)").alias("ts"),
        *(sf.lit(0.0).alias(name) for name in ("rate_avg", "rate_max")),
        *(sf.lit(None).cast("double").alias(f"throttle_ms_{name}") for name in ("avg", "max")),
        sf.lit(0).alias("samples"),
    )
