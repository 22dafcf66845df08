"""The stretches in which a bucket was throttled or over its limit: ``throttle_incident``."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.usage.measures import value_at_rank

_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_ON_BROKER: Final = (*_BUCKET, "broker_id")


def find_stretches(hours: DataFrame, gap: int) -> DataFrame:
    """Find the stretches of violating minutes: throttled, or with a maximum above the limit.

    ``level`` is that of the last minute; ``throttle_ms_p95`` is over the minutes with recorded
    throttling, null without any; ``dt`` is the day of the start.

    Args:
        hours: The columns of ``BUCKET_HOUR``.
        gap: Violating minutes whose starts are at most this many minutes apart are joined.
    """
    return _summarize(_number_stretches(_violating(hours), gap))


def brokers_affected(
    found: DataFrame, own: DataFrame | None = None, *, number: int = 0
) -> DataFrame:
    """Count the brokers with an incident of the bucket at the same time.

    Incidents are compared with those of the same hours, so that no bucket's are all compared with
    all.

    Args:
        found: All incidents, as ``find_stretches`` returns them.
        own: Those to count for; null is all.
        number: How many incidents there are.

    Returns:
        cluster_id, incident_id and brokers_affected.
    """
    hours = [
        sf.expr(f"unix_seconds({end}) div 3600") for end in ("start", "end - interval 1 second")
    ]

    def by_hour(incidents: DataFrame) -> DataFrame:
        hour = sf.explode(sf.sequence(*hours)).alias("hour")
        return incidents.select(*_ON_BROKER, "incident_id", "start", "end", hour)

    other = by_hour(found).select(
        *_BUCKET,
        "hour",
        sf.col("broker_id").alias("other_broker"),
        sf.col("start").alias("other_start"),
        sf.col("end").alias("other_end"),
    )
    at_once = (sf.col("other_start") < sf.col("end")) & (sf.col("other_end") > sf.col("start"))
    return (
        by_hour(found if own is None else own)
        .join(few(other, number), [*_BUCKET, "hour"])
        .where(at_once)
        .groupBy("cluster_id", "incident_id")
        .agg(sf.count_distinct("other_broker").alias("brokers_affected"))
    )


def few(frame: DataFrame, number: int) -> DataFrame:
    """Send what follows from so many incidents to every worker whole, unless they are many."""
    return sf.broadcast(frame) if number <= _BROADCAST_MAX else frame


def last_minutes(hours: DataFrame, *of: str) -> DataFrame:
    """Return the last minute of each cluster in ``BUCKET_HOUR``, as ``last_ts``.

    Args:
        hours: The columns of ``BUCKET_HOUR``.
        of: More columns: the last minute of each of their values.
    """
    minute = sf.expr(f"{_HOUR_S} + (length(bin(present)) - 1) * 60")
    last = sf.timestamp_seconds(sf.max(minute))
    return hours.groupBy("cluster_id", *of).agg(last.alias("last_ts"))


def with_status(found: DataFrame, last: DataFrame) -> DataFrame:
    """Say which incidents go on: those that end with the last minute that their cluster has.

    Args:
        found: Has ``cluster_id`` and ``end``.
        last: As ``last_minutes`` returns it.
    """
    status = sf.when(sf.col("end") > sf.col("last_ts"), "open").otherwise("closed")
    return found.join(sf.broadcast(last), "cluster_id").withColumn("status", status).drop("last_ts")


_HOUR_S: Final = "unix_date(dt) * 86400L + hour * 3600"


def _violating(hours: DataFrame) -> DataFrame:
    found = hours.where("size(violations) > 0").select(
        *_ON_BROKER, "dt", "hour", sf.inline("violations")
    )
    minute = sf.expr(f"timestamp_seconds({_HOUR_S} + minute * 60)").alias("ts")
    return found.select(*_ON_BROKER, minute, "level", "ratio", "throttle_ms", "deferred")


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
        .withColumns({"incident_id": _incident_id(), "dt": sf.to_date("start")})
        .withColumn("throttle_ms_p95", value_at_rank(95, "throttled"))
        .drop("throttled", "number")
    )


def _incident_id() -> Column:
    """Hash bucket, broker and start, in a form that any language can compute."""
    seconds = sf.unix_seconds("start")
    return sf.left(
        sf.sha2(sf.concat_ws("|", "cluster_id", "bucket_id", "broker_id", seconds), 256), sf.lit(32)
    )


PAIR: Final = "pair"
"""The grain of series that tell user and client-id apart."""

_MOST_CONTRIBUTORS: Final = 5
_BROADCAST_MAX: Final = 1_000_000
"""Incidents whose members are still sent to every worker whole, about 50 MB."""

_QUOTA: Final = ("quota_user", "quota_user_default", "quota_client_id", "quota_client_default")


def with_quotas(found: DataFrame, buckets: DataFrame, *, number: int = 0) -> DataFrame:
    """Add the entity whose quota limits the bucket; nulls where the buckets' names are unknown.

    Args:
        found: Has ``cluster_id``, ``bucket_id`` and ``level``.
        buckets: The columns of ``DIM_BUCKET``.
        number: How many incidents there are.
    """
    keys = ["cluster_id", "bucket_id", "level"]
    # Bucket and level name one entity; the last seen wins should they ever not.
    latest = buckets.groupBy(*keys).agg(sf.max(sf.struct("last_seen", *_QUOTA)).alias("quota"))
    quotas = latest.select(*keys, *(sf.col(f"quota.{name}") for name in _QUOTA))
    return found.join(few(quotas, number), keys, "left")


def with_contributors(
    found: DataFrame,
    rates: DataFrame | None,
    pairs: DataFrame | None,
    limits: DataFrame | None,
    *,
    number: int = 0,
) -> DataFrame:
    """Add ``first_contributors``: who had the highest rates in the first minute of an incident.

    At most five, as a JSON list of ``{"user", "client-id", "rate_max"}`` in falling order; null
    where no series tells user and client-id apart.

    Args:
        found: As ``find_stretches`` returns them.
        rates: The columns of ``RATE_MINUTE``.
        pairs: The columns of ``SERIES``, of series that tell both apart.
        limits: The columns of ``SERIES_LIMIT``.
        number: How many incidents there are.
    """
    if rates is None or pairs is None or limits is None:
        return found.withColumn("first_contributors", sf.lit(None).cast("string"))
    begun = found.select(
        *("cluster_id", "dt", "bucket_id", "broker_id", "incident_id"),
        sf.hour("start").alias("hour"),
        sf.col("start").alias("ts"),
    )
    in_hour = ["cluster_id", "dt", "hour"]
    limited = limits.join(few(begun, number), [*in_hour, "bucket_id"])
    own = limited.where("ts >= valid_from and ts < valid_to")
    names = pairs.select(*in_hour, "series_id", "user", "client_id")
    same = [*in_hour, "series_id"]
    members = names.join(few(own.select(*same, "broker_id", "ts", "incident_id"), number), same)
    contributors = (
        rates.join(few(members, number), [*same, "broker_id", "ts"])
        .groupBy("cluster_id", "incident_id")
        .agg(_as_json().alias("first_contributors"))
    )
    return found.join(few(contributors, number), ["cluster_id", "incident_id"], "left")


def _as_json() -> Column:
    by_rate = sf.struct((-sf.col("rate_max")).alias("falling"), "user", "client_id", "rate_max")
    first = sf.slice(sf.sort_array(sf.collect_list(by_rate)), 1, _MOST_CONTRIBUTORS)
    return sf.to_json(
        sf.transform(
            first,
            lambda item: sf.struct(
                item["user"].alias("user"),
                item["client_id"].alias("client-id"),
                item["rate_max"].alias("rate_max"),
            ),
        )
    )
