"""Points to minutes: which of them count, and what those of a minute sum up to.

Sums are integers of 10^-6 units, so that the order of the points says nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP
from app.domain.quota_keys import QuotaKey
from app.pipeline.ingest.points import OUTSIDE

DUPLICATE: Final = "duplicate"
MISSING_RATE: Final = "missing-rate"

_MINUTE_US: Final = 60_000_000
_DAY_US: Final = 86_400_000_000
_NAMES: Final = ("cluster_id", "key", "user", "client_id", "broker_id")
_BYTE_KEYS: Final = (str(QuotaKey.PRODUCER_BYTE_RATE), str(QuotaKey.CONSUMER_BYTE_RATE))
_MICROS: Final = "cast(floor(value * 1000000 + 0.5) as bigint)"


def sum_minutes(points: DataFrame, shares: int) -> DataFrame:
    """Sum up the points of each name in each minute on each broker.

    Of points with the same names and time the first counts, in the order of the inputs. A throttle
    time counts beside a rate of its minute only: what was not measured is not said to be 0.

    Args:
        points: The columns of ``POINTS_DDL``.
        shares: Into how many files the names of a day are divided.

    Returns:
        The columns of ``OBSERVATION_MINUTE`` that points tell; ``rows``, how many points there are;
        ``duplicates`` and ``lonely``, how many of them do not count; ``throttles``, ``tokens`` and
        ``ups``, how many of the others are no rates, and ``failed``, how many ``up`` are 0;
        ``first`` and ``last``, when they were; ``first_cluster`` and ``last_cluster``, hashes of
        what the input calls the cluster. Points with a ``problem`` are counted by it alone. A task
        has all minutes of a share of a day.
    """
    share = sf.pmod(sf.xxhash64("user", "client_id", "broker_id"), sf.lit(shares))
    spread = points.withColumns(
        {
            "day": sf.expr(f"cast(ts div {_DAY_US} as int)"),
            "share": share.cast("int"),
            "cluster": sf.when(sf.col("cluster") != "", sf.xxhash64("cluster")),
        }
    ).repartition("cluster_id", "day", "share")
    groups = (*_NAMES, "day", "share", "problem")
    distinct = spread.groupBy(*groups, "ts", "attribute").agg(
        sf.min_by("value", "position").alias("value"),
        sf.count(sf.lit(1)).alias("rows"),
        sf.min("cluster").alias("first_cluster"),
        sf.max("cluster").alias("last_cluster"),
    )
    minutes = distinct.groupBy(*groups, sf.expr(f"ts div {_MINUTE_US}").alias("minute")).agg(
        *_sums("rate", RATE),
        *_sums("throttle", THROTTLE),
        sf.count_if(sf.col("attribute") == THROTTLE).alias("throttles"),
        sf.count_if(sf.col("attribute") == TOKENS).alias("tokens"),
        sf.count_if(sf.col("attribute") == UP).alias("ups"),
        sf.count_if((sf.col("attribute") == UP) & (sf.col("value") == 0)).alias("failed"),
        sf.sum("rows").alias("rows"),
        sf.count(sf.lit(1)).alias("distinct"),
        sf.min("ts").alias("first"),
        sf.max("ts").alias("last"),
        sf.min("first_cluster").alias("first_cluster"),
        sf.max("last_cluster").alias("last_cluster"),
    )
    return minutes.select(*map(sf.expr, _columns()))


def _sums(name: str, attribute: str) -> tuple[Column, ...]:
    """Sum in two parts, which 64 bits hold whatever the values and their number."""
    of = f"attribute = '{attribute}' and value is not null"
    return (
        sf.expr(f"count_if({of}) as {name}_n"),
        sf.expr(f"sum(if({of}, shiftright({_MICROS}, 20), null)) as {name}_high"),
        sf.expr(f"sum(if({of}, {_MICROS} & 1048575, null)) as {name}_low"),
        sf.expr(f"max(if({of}, {_MICROS}, null)) as {name}_max"),
    )


def _mean(name: str) -> str:
    """Return the mean in 10^-6 units, a half rounded up; null without values."""
    n = f"nullif({name}_n, 0)"
    high, low = f"{name}_high", f"{name}_low"
    return f"({high} div {n} * 1048576 + ({high} % {n} * 1048576 + {low} + {n} div 2) div {n})"


def _columns() -> tuple[str, ...]:
    mean = _mean("rate")
    # In two parts again: 60 times the integer may not fit.
    per_minute = f"({mean} div 1000000 * 60 + ({mean} % 1000000 * 60 + 500000) div 1000000)"
    of_bytes = ", ".join(f"'{key}'" for key in _BYTE_KEYS)
    return (
        *_NAMES,
        "problem",
        "date_from_unix_date(day) as dt",
        f"timestamp_micros(minute * {_MINUTE_US}) as ts",
        f"{mean} / 1000000 as rate_avg",
        "rate_max / 1000000 as rate_max",
        f"{_mean('throttle')} / 1000000 as throttle_ms_avg",
        "throttle_max / 1000000 as throttle_ms_max",
        "cast(rate_n as int) as samples",
        f"if(key in ({of_bytes}), {per_minute}, null) as bytes_est",
        "rows",
        "if(problem is null, rows - distinct, 0) as duplicates",
        "if(rate_n = 0, throttles, 0) as lonely",
        "if(rate_n = 0, 0, throttles) as throttles",
        *("tokens", "ups", "failed", "first_cluster", "last_cluster"),
        *("timestamp_micros(first) as first", "timestamp_micros(last) as last"),
    )


def refused_points(points: DataFrame) -> DataFrame:
    """Return the points that do not count.

    Args:
        points: The columns of ``POINTS_DDL``.

    Returns:
        file, line, raw and reason. A point that was fine but for another one has its columns for
        its text.
    """
    broken = points.where(sf.col("problem") != OUTSIDE).select(
        "file", "line", sf.col("text").alias("raw"), sf.col("problem").alias("reason")
    )
    same = Window.partitionBy(*_NAMES, "minute", "ts", "attribute").orderBy("position")
    minute = Window.partitionBy(*_NAMES, "minute")
    is_rate = (sf.col("attribute") == RATE) & ~sf.col("again")
    ranked = (
        points.where(sf.col("problem").isNull())
        .withColumn("minute", sf.expr(f"ts div {_MINUTE_US}"))
        .withColumn("again", sf.row_number().over(same) > 1)
        .withColumn("rates", sf.count_if(is_rate).over(minute))
    )
    lonely = (sf.col("attribute") == THROTTLE) & (sf.col("rates") == 0)
    reason = sf.when(sf.col("again"), DUPLICATE).when(lonely, MISSING_RATE)
    time = sf.date_format(sf.timestamp_micros("ts"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
    columns = ("cluster_id", "broker_id", "key", "attribute", "user", "client_id", "value")
    surplus = ranked.select(
        "file", "line", sf.to_json(sf.struct(time, *columns)).alias("raw"), reason.alias("reason")
    ).where(sf.col("reason").isNotNull())
    return broken.unionByName(surplus)


def quarantine(refused: DataFrame, names: dict[int, str]) -> DataFrame:
    """Return the columns of ``QUARANTINE``.

    Args:
        refused: As ``refused_points`` returns them.
        names: What the inputs are called, by their numbers.
    """
    sources = refused.sparkSession.createDataFrame(list(names.items()), "file int, source string")
    return (
        refused.join(sf.broadcast(sources), "file")
        .groupBy("source", "line", "raw", "reason")
        .agg(sf.count(sf.lit(1)).alias("n"))
    )
