"""Points to minutes: which of them count, and what those of a minute sum up to.

Sums are integers of 10^-6 units, so that the order of the points says nothing.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE, UP
from app.domain.quota_keys import QuotaKey
from app.pipeline.ingest.points import LEFT_OUT

DUPLICATE: Final = "duplicate"

MINUTE_US: Final = 60_000_000
_DAY_US: Final = 86_400_000_000
_NAMES: Final = ("cluster_id", "key", "user", "client_id", "broker_id")
_MINUTE: Final = ("cluster_id", "dt", *_NAMES[1:], "ts", "share")
_BYTE_KEYS: Final = (str(QuotaKey.PRODUCER_BYTE_RATE), str(QuotaKey.CONSUMER_BYTE_RATE))


def points_that_count(points: DataFrame, firsts: Sequence[int], shares: int) -> DataFrame:
    """Return the points that are fine, each once.

    Of points with the same names and time the first counts, in the order of the inputs; where
    several inputs have the same attribute of the same minute, that of the first.

    Args:
        points: The columns of ``POINTS_DDL``.
        firsts: The number of the first file of each input.
        shares: Into how many files the names of a day are divided.

    Returns:
        The names, ``dt`` and ``ts`` of their minutes, ``share``, ``attribute``, ``at`` and
        ``value``, in the order of ``OBSERVATION_MINUTE``. A task has all of a share of a day.
    """
    spread = (
        points.where(sf.col("problem").isNull())
        .withColumns(
            {
                "dt": sf.expr(f"date_from_unix_date(cast(ts div {_DAY_US} as int))"),
                "at": sf.col("ts"),
                "ts": sf.expr(f"timestamp_micros(ts - ts % {MINUTE_US})"),
                "share": sf.pmod(sf.xxhash64(*_NAMES[2:]), sf.lit(shares)),
            }
        )
        .repartition("cluster_id", "dt", "share")
        .sortWithinPartitions(*_MINUTE, "attribute", "at")
    )
    counted = spread.groupBy(*_MINUTE, "attribute", "at").agg(
        sf.min_by("value", "position").alias("value"), sf.min("file").alias("file")
    )
    if len(firsts) > 1:
        later = _is_of_later(firsts, *_MINUTE, "attribute")
        counted = counted.withColumn("is_later", later).where("not is_later")
    # They are sorted already. Spark drops this sort, but only after it has seen that the next
    # aggregation can do without hashes.
    return counted.sortWithinPartitions(*_MINUTE)


def sum_minutes(points: DataFrame) -> DataFrame:
    """Sum up the points of each name in each minute on each broker.

    A throttle time without a rate in its minute is a minute with rate 0.

    Args:
        points: As ``points_that_count`` returns them.

    Returns:
        The columns of ``OBSERVATION_MINUTE`` that points tell.
    """
    micros = points.withColumn("micros", sf.floor(sf.expr("value * 1000000 + 0.5")))
    sums = micros.groupBy(*_MINUTE).agg(*_sums("rate", RATE), *_sums("throttle", THROTTLE))
    return sums.select(*map(sf.expr, _columns())).where("rate_avg is not null")


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
    return (
        *(*_NAMES, "dt", "ts"),
        f"{mean} / 1000000 as rate_avg",
        f"coalesce(rate_max, {without_rate}) / 1000000 as rate_max",
        f"{_mean('throttle')} / 1000000 as throttle_ms_avg",
        "throttle_max / 1000000 as throttle_ms_max",
        "cast(rate_n as int) as samples",
        f"if(key in ({of_bytes}), {per_minute}, null) as bytes_est",
    )


def idle_minutes(minutes: DataFrame, points: DataFrame) -> DataFrame:
    """Return the minutes of a day in which a broker was scraped and a name of it had no sample.

    The rate was 0: a broker forgets what has been idle for an hour.

    Args:
        minutes: As ``sum_minutes`` returns them.
        points: Those that count.

    Returns:
        The columns of ``OBSERVATION_MINUTE`` that points tell, with ``samples`` 0.
    """
    broker_day = ("cluster_id", "dt", "broker_id")
    # Numbers of the day's minutes in two bytes: these sets are shuffled, and sent to all workers.
    number = sf.expr("cast(unix_seconds(ts) % 86400 div 60 as smallint)")
    scraped = points.where(f"attribute = '{UP}' and value != 0").groupBy(*broker_day)
    seen = minutes.groupBy("dt", *_NAMES)
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
    broken = points.where(sf.col("problem") != LEFT_OUT).select(
        "file", "line", sf.col("text").alias("raw"), sf.col("problem").alias("reason")
    )
    same = Window.partitionBy(*_NAMES, "ts", "attribute").orderBy("position")
    fine = points.where(sf.col("problem").isNull())
    again = sf.row_number().over(same) > 1
    if len(firsts) > 1:
        fine = fine.withColumn("minute", sf.expr(f"ts div {MINUTE_US}"))
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
