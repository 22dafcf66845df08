"""The stretches of minutes in which a bucket was throttled or over its limit on one broker."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.jobs.bucket_rules import is_over, is_throttled, throttle_ms, usable_limit
from app.pipeline.jobs.utilization import value_at_rank

_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_ON_BROKER: Final = (*_BUCKET, "broker_id")
_MOST_BYTES: Final = 10**13
"""No broker moves more in a minute; it keeps the sums of absurd rates within 64 bits."""


def incidents(minutes: DataFrame, gap: int = 1) -> DataFrame:
    """Find the incidents, with the brokers that each affects and its status.

    Args:
        minutes: The columns of ``BUCKET_MINUTE``; rates are per second and broker.
        gap: Violating minutes whose starts are at most this many minutes apart are joined.

    Returns:
        The columns of ``THROTTLE_INCIDENT`` but for those of the quota entity and
        ``first_contributors``.
    """
    return with_status(with_brokers(find_stretches(minutes, gap)), last_minutes(minutes))


def find_stretches(minutes: DataFrame, gap: int) -> DataFrame:
    """Find the stretches of violating minutes: throttled, or with a maximum above the limit.

    ``level`` is that of the last minute; ``throttle_ms_p95`` is over the minutes with recorded
    throttling, null without any. Arguments are those of ``incidents``.
    """
    return _summarize(_number_stretches(_violating(minutes), gap))


def with_brokers(found: DataFrame) -> DataFrame:
    """Add ``brokers_affected``: the brokers with an incident of the bucket at the same time.

    Incidents are compared with those of the same hours, so that no bucket's are all compared with
    all.
    """
    hours = [
        sf.expr(f"unix_seconds({end}) div 3600") for end in ("start", "end - interval 1 second")
    ]
    by_hour = found.select(
        *_ON_BROKER, "incident_id", "start", "end", sf.explode(sf.sequence(*hours)).alias("hour")
    )
    other = by_hour.select(
        *_BUCKET,
        "hour",
        sf.col("broker_id").alias("other_broker"),
        sf.col("start").alias("other_start"),
        sf.col("end").alias("other_end"),
    )
    at_once = (sf.col("other_start") < sf.col("end")) & (sf.col("other_end") > sf.col("start"))
    brokers = (
        by_hour.join(other, [*_BUCKET, "hour"])
        .where(at_once)
        .groupBy("cluster_id", "incident_id")
        .agg(sf.count_distinct("other_broker").alias("brokers_affected"))
    )
    return found.join(brokers, ["cluster_id", "incident_id"])


def last_minutes(minutes: DataFrame) -> DataFrame:
    """Return the last minute of each cluster, as ``last_ts``."""
    return minutes.groupBy("cluster_id").agg(sf.max("ts").alias("last_ts"))


def with_status(found: DataFrame, last: DataFrame) -> DataFrame:
    """Add ``status``: ``open`` where an incident reaches the last minute that its cluster has.

    Args:
        found: Has ``cluster_id`` and ``end``.
        last: As ``last_minutes`` returns it.
    """
    status = sf.when(sf.col("end") > sf.col("last_ts"), "open").otherwise("closed")
    return found.join(sf.broadcast(last), "cluster_id").withColumn("status", status).drop("last_ts")


def _violating(minutes: DataFrame) -> DataFrame:
    return minutes.where(is_throttled() | is_over(1.0)).select(
        *_ON_BROKER,
        "ts",
        "level",
        (sf.col("rate_max") / usable_limit(sf.col("limit"))).alias("ratio"),
        throttle_ms().alias("throttle_ms"),
        deferred_bytes().alias("deferred"),
    )


def deferred_bytes() -> Column:
    """Estimate how many bytes of a minute had to wait, in whole bytes; null for other rates.

    The maximum lasts for as long as the average allows, rate_avg / rate_max of the minute, and
    what exceeds the limit in that time waits: (rate_max - limit) x 60 s x rate_avg / rate_max. So
    an estimate is never above what the minute moved. A broker that delays well keeps the rate at
    the limit, and hides what clients still hold back: the true figure may be larger.
    """
    rate, average = sf.col("rate_max"), sf.col("rate_avg")
    over = sf.greatest(rate - usable_limit(sf.col("limit")), sf.lit(0.0))
    share = sf.least(average / sf.when(rate > 0, rate), sf.lit(1.0))
    waiting = sf.least(sf.coalesce(over * 60 * share, sf.lit(0.0)), sf.lit(float(_MOST_BYTES)))
    return sf.when(sf.col("key").endswith("_byte_rate"), sf.floor(waiting))


def _number_stretches(violating: DataFrame, gap: int) -> DataFrame:
    """Give the minutes of one incident the same number: a longer pause begins the next one."""
    # One shuffle, by bucket, serves all that follows.
    by_bucket = violating.repartition(*_BUCKET)
    in_order = Window.partitionBy(*_ON_BROKER).orderBy("ts")
    pause = sf.unix_seconds("ts") - sf.lag(sf.unix_seconds("ts")).over(in_order)
    begins = sf.coalesce(pause > gap * 60, sf.lit(True)).cast("int")
    return by_bucket.withColumn("begins", begins).withColumn(
        "number", sf.sum("begins").over(in_order)
    )


def _summarize(numbered: DataFrame) -> DataFrame:
    throttled = sf.sort_array(sf.collect_list("throttle_ms"))
    start = sf.min("ts")
    return (
        numbered.groupBy(*_ON_BROKER, "number")
        .agg(
            start.alias("start"),
            (sf.max("ts") + sf.expr("interval 1 minute")).alias("end"),
            sf.count(sf.lit(1)).alias("minutes"),
            sf.max("ratio").alias("peak_ratio"),
            throttled.alias("throttled"),
            sf.sum("deferred").alias("est_deferred_bytes"),
            sf.max(sf.struct("ts", "level"))["level"].alias("level"),
        )
        .withColumn("incident_id", _incident_id())
        .withColumn("throttle_ms_p95", value_at_rank(95, "throttled"))
        .drop("throttled", "number")
    )


def _incident_id() -> Column:
    """Hash bucket, broker and start, in a form that any language can compute."""
    seconds = sf.unix_seconds("start")
    return sf.left(
        sf.sha2(sf.concat_ws("|", "cluster_id", "bucket_id", "broker_id", seconds), 256), sf.lit(32)
    )
