"""Points of metrics to one row a minute: which points count, and what they sum up to."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.quota_keys import QuotaKey
from app.pipeline.sources.metric_names import RATE, THROTTLE

UNNAMED: Final = "unknown"
"""The cluster id of points that name no cluster, where ``--cluster`` names none either."""

DUPLICATE: Final = "duplicate"
MISSING_RATE: Final = "missing-rate"

_NAMES: Final = ("cluster_id", "broker_id", "key", "user", "client_id", "minute")
_MICRO: Final = 1_000_000
_LOW_BITS: Final = 20
_BOTH: Final = (RATE, THROTTLE)
_BYTE_KEYS: Final = (str(QuotaKey.PRODUCER_BYTE_RATE), str(QuotaKey.CONSUMER_BYTE_RATE))


def judged(points: DataFrame, cluster: str | None = None) -> DataFrame:
    """Say of each point whether it counts.

    Of points with the same names and time the first counts, in the order of the inputs. A throttle
    time counts beside a rate of its minute only: what was not measured is not said to be 0.

    Args:
        points: The columns of ``POINT_DDL``.
        cluster: The cluster id of all points; null leaves each its own.

    Returns:
        The columns of ``points``, ``minute``, ``told`` (the cluster id that the input has) and
        ``reason`` (why it does not count, else null).
    """
    told = sf.col("cluster_id")
    own = sf.when(told == "", UNNAMED).otherwise(told)
    named = points.withColumns(
        {
            "told": told,
            "cluster_id": sf.when(told.isNotNull(), sf.lit(cluster)) if cluster else own,
            "minute": sf.date_trunc("minute", "ts"),
            # What cannot be used has no names; without this one task would get all of it.
            "spread": sf.when(sf.col("problem").isNotNull(), sf.xxhash64("file", "line")),
        }
    )
    group = (*_NAMES, "spread")
    place = Window.partitionBy(*group, "attribute", "ts").orderBy("file", "line", "value")
    rates = sf.count(sf.when(sf.col("attribute") == RATE, 1)).over(Window.partitionBy(*group))
    ranked = named.repartition(*group).withColumn("place", sf.row_number().over(place))
    beside = ranked.withColumn("rates", rates)
    reason = (
        sf.when(sf.col("problem").isNotNull(), sf.col("problem"))
        .when(sf.col("place") > 1, DUPLICATE)
        .when((sf.col("attribute") == THROTTLE) & (sf.col("rates") == 0), MISSING_RATE)
    )
    return beside.withColumn("reason", reason).drop("problem", "place", "rates", "spread")


def observations(points: DataFrame) -> DataFrame:
    """Sum up the points that count.

    Sums are integers of 10^-6 units, so that the order of the points says nothing.

    Returns:
        The columns of ``OBSERVATION_MINUTE`` without grain, source and ingest_run_id.
    """
    used = points.where(sf.col("reason").isNull() & sf.col("attribute").isin(RATE, THROTTLE))
    micros = sf.floor(sf.col("value") * _MICRO + 0.5)
    minutes = (
        used.withColumns({one: sf.when(sf.col("attribute") == one, micros) for one in _BOTH})
        .groupBy(*_NAMES)
        .agg(*(column for one in _BOTH for column in _sums(one)))
    )
    average = _average(RATE)
    # In two parts again: 60 times the integer may not fit.
    whole, rest = f"average div {_MICRO} * 60", f"average % {_MICRO} * 60"
    bytes_of_minute = sf.expr(f"{whole} + ({rest} + {_MICRO // 2}) div {_MICRO}")
    return minutes.withColumn("average", average).select(
        *("cluster_id", sf.to_date("minute").alias("dt"), sf.col("minute").alias("ts")),
        *("broker_id", "key", "user", "client_id"),
        (sf.col("average") / _MICRO).alias("rate_avg"),
        (sf.col(f"{RATE}_max") / _MICRO).alias("rate_max"),
        (_average(THROTTLE) / _MICRO).alias("throttle_ms_avg"),
        (sf.col(f"{THROTTLE}_max") / _MICRO).alias("throttle_ms_max"),
        sf.col(f"{RATE}_n").cast("int").alias("samples"),
        sf.when(sf.col("key").isin(*_BYTE_KEYS), bytes_of_minute).alias("bytes_est"),
    )


def _sums(name: str) -> list[Column]:
    """Sum in two parts, which 64 bits hold whatever the values and their number."""
    micros = sf.col(name)
    return [
        sf.count(micros).alias(f"{name}_n"),
        sf.max(micros).alias(f"{name}_max"),
        sf.sum(sf.shiftright(micros, _LOW_BITS)).alias(f"{name}_high"),
        sf.sum(micros.bitwiseAND(sf.lit((1 << _LOW_BITS) - 1))).alias(f"{name}_low"),
    ]


def _average(name: str) -> Column:
    """Return the mean, a half rounded up; null without values."""
    high, low, n = (f"{name}_{part}" for part in ("high", "low", "n"))
    scale = 1 << _LOW_BITS
    mean = f"({high} div {n}) * {scale} + ({high} % {n} * {scale} + {low} + {n} div 2) div {n}"
    return sf.when(sf.col(f"{name}_n") > 0, sf.expr(mean))


def quarantined(points: DataFrame, names: DataFrame) -> DataFrame:
    """Return what does not count.

    Args:
        points: As ``judged`` returns them, without those outside the period.
        names: ``file int, source string``: what the inputs are called; few enough to broadcast.

    Returns:
        The columns of ``QUARANTINE``. A point that was fine but for another one has its columns
        for its text.
    """
    time = sf.date_format("ts", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
    columns = ("cluster_id", "broker_id", "key", "attribute", "user", "client_id", "value")
    text = sf.to_json(sf.struct(time, *columns))
    refused = points.where(sf.col("reason").isNotNull())
    return (
        refused.join(sf.broadcast(names), "file")
        .withColumn("raw", sf.coalesce("raw", text))
        .groupBy("source", "line", "raw", "reason")
        .agg(sf.sum("n").alias("n"))
    )
