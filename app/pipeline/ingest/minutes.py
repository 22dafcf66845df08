"""Points to minutes: which of them count, and what those of a minute sum up to.

Sums are integers of 10^-6 units, so that the order of the points says nothing.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE
from app.pipeline.ingest.names import ATTRIBUTES, HOUR_US, MINUTE_US, NAMES, hour_columns, series_id
from app.pipeline.ingest.points import LEFT_OUT
from app.pipeline.lake import Partition, is_within
from app.pipeline.tables import QUARANTINE

DUPLICATE: Final = "duplicate"

_MINUTE: Final = ("place", "series_id", "broker_minute", "hour_number", "share")


def points_that_count(
    points: DataFrame, grain: str, firsts: Sequence[int], shares: int, cluster: str | None = None
) -> DataFrame:
    """Return the points that are fine, each once.

    Of points with the same names and time that of the first input counts, and of one input that
    with the greatest value; where several inputs have the same attribute of the same minute, those
    of the first.

    Args:
        points: The columns of ``POINTS_DDL``.
        grain: Of the input.
        firsts: The number of the first file of each input.
        shares: Into how many files the series of an hour are divided.
        cluster: That all points are of; null where each says its own.

    Returns:
        ``hour_number`` (of the epoch), cluster_id (unless ``cluster`` is given), series_id,
        ``share``, ``broker_minute`` (the broker in the upper bits, the minute of the hour in the
        lower six), attribute (its number in ``ATTRIBUTES``) and value, in the order of
        ``RATE_MINUTE``. A task has all of a share.
    """
    attribute = " ".join(f"when '{name}' then {code}" for code, name in enumerate(ATTRIBUTES))
    # `up` has no key.
    fine = points.where(sf.col("problem").isNull())
    named = fine.withColumn("key", sf.coalesce("key", sf.lit("")))
    narrow = named.select(
        "cluster_id",
        series_id(grain).alias("series_id"),
        sf.expr(f"cast(ts div {HOUR_US} as int)").alias("hour_number"),
        sf.expr(f"shiftleft(cast(broker_id as bigint), 6) | ts % {HOUR_US} div {MINUTE_US}").alias(
            "broker_minute"
        ),
        # Attribute and time within the minute.
        sf.expr(
            f"shiftleft(cast(case attribute {attribute} end as bigint), 26) | ts % {MINUTE_US}"
        ).alias("point"),
        "value",
        _input_of("file", firsts).alias("input"),
    ).withColumns(
        {
            # Hour and upper bits of the series in one number: nearly each comparison ends there.
            "place": sf.expr(
                "shiftleft(cast(hour_number as bigint), 36) | shiftrightunsigned(series_id, 28)"
            ),
            "share": sf.expr(f"cast(pmod(series_id, {shares}) as int)"),
        }
    )
    if cluster is not None:
        narrow = narrow.drop("cluster_id")
    minute = _minute_of(narrow)
    spread = narrow.repartition("hour_number", "share").sortWithinPartitions(
        *minute, "point", "input", sf.desc("value")
    )
    counted = spread.groupBy(*minute, "point").agg(
        sf.first("value").alias("value"), sf.first("input").alias("input")
    )
    counted = counted.withColumn("attribute", sf.expr("cast(shiftright(point, 26) as int)"))
    if len(firsts) > 1:
        first = sf.min("input").over(Window.partitionBy(*minute, "attribute"))
        counted = counted.withColumn("first", first).where("input = first")
    # They are sorted already. Spark drops this sort, but only after it has seen that the next
    # aggregation can do without hashes.
    return counted.sortWithinPartitions(*minute)


def _minute_of(points: DataFrame) -> list[str]:
    """Return what points of one minute have in common.

    The optimizer drops a constant from what rows are sorted by, but not from what they are grouped
    by. It then takes the order for another one, and sums up with tables of hashes.
    """
    return [name for name in (*_MINUTE, "cluster_id") if name in points.columns]


def sum_minutes(points: DataFrame, cluster: str | None = None) -> DataFrame:
    """Sum up the points of each series in each minute on each broker.

    A throttle time without a rate in its minute is a minute with rate 0.

    Args:
        points: As ``points_that_count`` returns them.
        cluster: As it was given there.

    Returns:
        The columns of ``RATE_MINUTE``.
    """
    micros = points.withColumn("micros", sf.floor(sf.expr("value * 1000000 + 0.5")))
    minute = _minute_of(points)
    sums = micros.groupBy(*minute).agg(*_sums("rate", RATE), *_sums("throttle", THROTTLE))
    if cluster is not None:
        sums = sums.withColumn("cluster_id", sf.lit(cluster))
    columns = sums.withColumns(hour_columns()).select(*map(sf.expr, _columns()))
    return columns.where("rate_avg is not null")


def _input_of(file: str, firsts: Sequence[int]) -> Column:
    """Return the number of the input that a file is of."""
    return sum(((sf.col(file) >= first).cast("int") for first in firsts[1:]), sf.lit(0))


def _sums(name: str, attribute: str) -> tuple[Column, ...]:
    """Sum in two parts, which 64 bits hold whatever the values and their number."""
    micros = f"if(attribute = {ATTRIBUTES.index(attribute)}, micros, null)"
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
    minute = "hour_number * 3600L + (broker_minute & 63) * 60"
    return (
        *("cluster_id", "dt", "hour", "series_id"),
        "cast(shiftright(broker_minute, 6) as int) as broker_id",
        f"timestamp_seconds({minute}) as ts",
        f"coalesce({_mean('rate')}, {without_rate}) / 1000000 as rate_avg",
        f"coalesce(rate_max, {without_rate}) / 1000000 as rate_max",
        f"{_mean('throttle')} / 1000000 as throttle_ms_avg",
        "throttle_max / 1000000 as throttle_ms_max",
        "cast(rate_n as int) as samples",
    )


def refused_points(points: DataFrame, firsts: Sequence[int]) -> DataFrame:
    """Return the points that do not count.

    Args:
        points: The columns of ``POINTS_DDL``.
        firsts: The number of the first file of each input.

    Returns:
        cluster_id, ts (microseconds, both null where they cannot be read), file, line, raw and
        reason. A point that was fine but for another one has its columns for its text.
    """
    broken = points.where(sf.col("problem") != LEFT_OUT).select(
        *("cluster_id", "ts", "file", "line"),
        sf.col("text").alias("raw"),
        sf.col("problem").alias("reason"),
    )
    names = ("cluster_id", *NAMES, "broker_id", "attribute")
    fine = points.where(sf.col("problem").isNull())
    fine = fine.withColumns(
        {"minute": sf.expr(f"ts div {MINUTE_US}"), "input": _input_of("file", firsts)}
    )
    same = Window.partitionBy(*names, "ts").orderBy("input", sf.desc("value"), "position")
    again = sf.row_number().over(same) > 1
    if len(firsts) > 1:
        first = sf.min("input").over(Window.partitionBy(*names, "minute"))
        again |= sf.col("input") > first
    twice = fine.withColumn("again", again).where("again")
    time = sf.date_format(sf.timestamp_micros("ts"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
    columns = ("cluster_id", "broker_id", "key", "attribute", "user", "client_id", "value")
    raw = sf.to_json(sf.struct(time, *columns)).alias("raw")
    reason = sf.lit(DUPLICATE).alias("reason")
    surplus = twice.select("cluster_id", "ts", "file", "line", raw, reason)
    return broken.unionByName(surplus)


def quarantine(refused: DataFrame, names: dict[int, str], hours: Sequence[Partition]) -> DataFrame:
    """Return the columns of ``QUARANTINE``.

    Args:
        refused: As ``refused_points`` returns them.
        names: What the inputs are called, by their numbers.
        hours: That the run is about; the first has what is of none of them.
    """
    sources = refused.sparkSession.createDataFrame(list(names.items()), "file int, source string")
    number = sf.expr(f"cast(ts div {HOUR_US} as int)")
    own = refused.withColumn("hour_number", number).withColumns(hour_columns())
    is_own = sf.coalesce(is_within(hours, QUARANTINE.partitions), sf.lit(False))
    at_home = {"cluster_id": "string", "dt": "date", "hour": "int"}
    home = hours[0]
    placed = own.withColumn("is_own", is_own).withColumns(
        {
            name: sf.when(sf.col("is_own"), sf.col(name)).otherwise(sf.lit(home[name]).cast(kind))
            for name, kind in at_home.items()
        }
    )
    return (
        placed.join(sf.broadcast(sources), "file")
        .groupBy(*QUARANTINE.partitions, "source", "line", "raw", "reason")
        .agg(sf.count(sf.lit(1)).alias("n"))
    )
