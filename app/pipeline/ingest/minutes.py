"""Points to minutes: which of them count, and what those of a minute sum up to.

Sums are integers of 10^-6 units, so that the order of the points says nothing.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP
from app.domain.quota_keys import QuotaKey
from app.pipeline.ingest.points import OUTSIDE

DUPLICATE: Final = "duplicate"

_MINUTE_US: Final = 60_000_000
_DAY_US: Final = 86_400_000_000
_NAMES: Final = ("cluster_id", "key", "user", "client_id", "broker_id")
_BYTE_KEYS: Final = (str(QuotaKey.PRODUCER_BYTE_RATE), str(QuotaKey.CONSUMER_BYTE_RATE))


def sum_minutes(points: DataFrame, firsts: Sequence[int], shares: int) -> DataFrame:
    """Sum up the points of each name in each minute on each broker.

    Of points with the same names and time the first counts, in the order of the inputs; where
    several inputs have the same attribute of the same minute, that of the first. A throttle time
    without a rate in its minute is a minute with rate 0.

    Args:
        points: The columns of ``POINTS_DDL``.
        firsts: The number of the first file of each input.
        shares: Into how many files the names of a day are divided.

    Returns:
        The columns of ``OBSERVATION_MINUTE`` that points tell, and ``problem``; ``rate_avg`` is
        null where the minute is no row of that table; in ``counted`` ``rows``, how many points
        there are; ``duplicates``, how many of them do not count; ``throttles``, ``tokens`` and
        ``ups``, how many of the others are no rates, and ``failed``, how many ``up`` are 0;
        ``first`` and ``last``, when they were;
        ``first_cluster`` and ``last_cluster``, hashes of what the input calls the cluster. Points
        with a ``problem`` are counted by it alone. A task has all minutes of a share of a day.
    """
    # Sorted once, nearly as the table is: both aggregations take what follows each other. The first
    # column is a number, which Spark compares without looking at the row.
    groups = ("dt", *_NAMES, "ts", "share", "problem")
    distinct = ("attribute", "at")
    spread = (
        points.withColumns(
            {
                "dt": sf.expr(f"date_from_unix_date(cast(ts div {_DAY_US} as int))"),
                "at": sf.col("ts"),
                "ts": sf.expr(f"timestamp_micros(ts - ts % {_MINUTE_US})"),
                "share": sf.pmod(sf.xxhash64(*_NAMES[2:]), sf.lit(shares)),
                "cluster": sf.when(sf.col("cluster") != "", sf.xxhash64("cluster")),
            }
        )
        .repartition("cluster_id", "dt", "share")
        .sortWithinPartitions(*groups, *distinct)
    )
    points_of_time = spread.groupBy(*groups, *distinct).agg(
        sf.min_by("value", "position").alias("value"),
        sf.min("file").alias("file"),
        sf.count(sf.lit(1)).alias("rows"),
        sf.min("cluster").alias("first_cluster"),
        sf.max("cluster").alias("last_cluster"),
    )
    if len(firsts) > 1:
        attribute = sf.when(~_is_of_later(firsts, *groups, "attribute"), sf.col("attribute"))
        points_of_time = points_of_time.withColumn("attribute", attribute)
    micros = points_of_time.withColumn("micros", sf.floor(sf.expr("value * 1000000 + 0.5")))
    minutes = micros.groupBy(*groups).agg(
        *_sums("rate", RATE),
        *_sums("throttle", THROTTLE),
        sf.count_if(sf.col("attribute") == THROTTLE).alias("throttles"),
        sf.count_if(sf.col("attribute") == TOKENS).alias("tokens"),
        sf.count_if(sf.col("attribute") == UP).alias("ups"),
        sf.count_if((sf.col("attribute") == UP) & (sf.col("value") == 0)).alias("failed"),
        sf.sum("rows").alias("rows"),
        sf.count("attribute").alias("distinct"),
        sf.min("at").alias("first"),
        sf.max("at").alias("last"),
        sf.min("first_cluster").alias("first_cluster"),
        sf.max("last_cluster").alias("last_cluster"),
    )
    return minutes.select(*map(sf.expr, _columns()))


def _is_of_later(firsts: Sequence[int], *minute: str) -> Column:
    """Tell whether an input that is named earlier has an attribute of a minute, too."""
    number = sum(((sf.col("file") >= first).cast("int") for first in firsts), sf.lit(0))
    return number > sf.min(number).over(Window.partitionBy(*minute))


def _sums(name: str, attribute: str) -> tuple[Column, ...]:
    """Sum in two parts, which 64 bits hold whatever the values and their number."""
    micros = f"if(attribute = '{attribute}', micros, null)"
    return (
        sf.expr(f"count({micros}) as {name}_n"),
        sf.expr(f"sum(shiftright({micros}, 20)) as {name}_high"),
        sf.expr(f"sum({micros} & 1048575) as {name}_low"),
        sf.expr(f"max({micros}) as {name}_max"),
    )


def _mean(name: str) -> str:
    """Return the mean in 10^-6 units, a half rounded up; null without values."""
    n = f"nullif({name}_n, 0)"
    high, low = f"{name}_high", f"{name}_low"
    return f"({high} div {n} * 1048576 + ({high} % {n} * 1048576 + {low} + {n} div 2) div {n})"


def _columns() -> tuple[str, ...]:
    without_rate = "if(throttle_n > 0, 0, null)"
    mean = f"coalesce({_mean('rate')}, {without_rate})"
    # In two parts again: 60 times the integer may not fit.
    per_minute = f"({mean} div 1000000 * 60 + ({mean} % 1000000 * 60 + 500000) div 1000000)"
    of_bytes = ", ".join(f"'{key}'" for key in _BYTE_KEYS)
    clusters = ("first_cluster", "last_cluster")
    counts = {
        "duplicates": "if(problem is null, rows - distinct, 0)",
        **{name: name for name in ("rows", "throttles", "tokens", "ups", "failed", *clusters)},
        **{name: f"timestamp_micros({name})" for name in ("first", "last")},
    }
    # One column, because each of its own costs time where they are cached.
    fields = ", ".join(f"'{name}', {expression}" for name, expression in counts.items())
    return (
        *(*_NAMES, "problem", "dt", "ts"),
        f"{mean} / 1000000 as rate_avg",
        f"coalesce(rate_max, {without_rate}) / 1000000 as rate_max",
        f"{_mean('throttle')} / 1000000 as throttle_ms_avg",
        "throttle_max / 1000000 as throttle_ms_max",
        "cast(rate_n as int) as samples",
        f"if(key in ({of_bytes}), {per_minute}, null) as bytes_est",
        f"named_struct({fields}) as counted",
    )


def idle_minutes(minutes: DataFrame) -> DataFrame:
    """Return the minutes of a day in which a broker was scraped and a name of it had no sample.

    The rate was 0: a broker forgets what has been idle for an hour.

    Args:
        minutes: As ``sum_minutes`` returns them.

    Returns:
        The columns of ``OBSERVATION_MINUTE`` that points tell, with ``samples`` 0.
    """
    broker_day = ("cluster_id", "dt", "broker_id")
    # Numbers of the day's minutes in two bytes: these sets are shuffled, and sent to all workers.
    number = sf.expr("cast(unix_seconds(ts) % 86400 div 60 as smallint)")
    scraped = minutes.where("counted.ups > counted.failed").groupBy(*broker_day)
    seen = minutes.where("rate_avg is not null").groupBy("dt", *_NAMES)
    numbers = seen.agg(sf.collect_set(number).alias("seen")).join(
        sf.broadcast(scraped.agg(sf.collect_set(number).alias("scraped"))), list(broker_day)
    )
    idle = numbers.select(
        "dt", *_NAMES, sf.explode(sf.array_except("scraped", "seen")).alias("number")
    )
    return idle.select(
        *("dt", *_NAMES),
        sf.expr("timestamp_seconds(unix_date(dt) * 86400L + number * 60)").alias("ts"),
        *(sf.lit(0.0).alias(name) for name in ("rate_avg", "rate_max")),
        *(sf.lit(None).cast("double").alias(f"throttle_ms_{name}") for name in ("avg", "max")),
        sf.lit(0).alias("samples"),
        sf.when(sf.col("key").isin(*_BYTE_KEYS), sf.lit(0).cast("bigint")).alias("bytes_est"),
    ).repartition("cluster_id", "dt")


def refused_points(points: DataFrame, firsts: Sequence[int]) -> DataFrame:
    """Return the points that do not count.

    Args:
        points: The columns of ``POINTS_DDL``.
        firsts: The number of the first file of each input.

    Returns:
        file, line, raw and reason. A point that was fine but for another one has its columns for
        its text.
    """
    broken = points.where(sf.col("problem") != OUTSIDE).select(
        "file", "line", sf.col("text").alias("raw"), sf.col("problem").alias("reason")
    )
    same = Window.partitionBy(*_NAMES, "ts", "attribute").orderBy("position")
    fine = points.where(sf.col("problem").isNull())
    again = sf.row_number().over(same) > 1
    if len(firsts) > 1:
        fine = fine.withColumn("minute", sf.expr(f"ts div {_MINUTE_US}"))
        again |= _is_of_later(firsts, *_NAMES, "minute", "attribute")
    twice = fine.withColumn("again", again).where("again")
    time = sf.date_format(sf.timestamp_micros("ts"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
    columns = ("cluster_id", "broker_id", "key", "attribute", "user", "client_id", "value")
    raw = sf.to_json(sf.struct(time, *columns)).alias("raw")
    surplus = twice.select("file", "line", raw, sf.lit(DUPLICATE).alias("reason"))
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
