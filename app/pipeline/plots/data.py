"""The minutes behind the pictures: of the worst buckets alone, so that they fit in memory."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.summary import NearLimit, Results, Row
from app.pipeline.tables import BUCKET_MINUTE

_DAYS: Final = 7
_BY_DAY: Final = ("cluster_id", "bucket_id", "broker_id", "dt")


def hourly_shares(results: Results, worst: Sequence[NearLimit]) -> list[Row]:
    """Return the highest minute of each hour on the busiest broker, as a share of the limit.

    Args:
        results: Of their last seven days at most.
        worst: The buckets.

    Returns:
        ``cluster_id, bucket_id, hour, share``, in order of the hours.
    """
    minutes = _minutes(results)
    if minutes is None or not worst:
        return []
    last = max(item.day["dt"] for item in worst)
    ids = [item.day["bucket_id"] for item in worst]
    chosen = minutes.where(
        sf.col("bucket_id").isin(ids)
        & (sf.col("dt") > last - timedelta(days=_DAYS))
        & (sf.col("limit") > 0)
    )
    hours = chosen.groupBy("cluster_id", "bucket_id", sf.date_trunc("hour", "ts").alias("hour"))
    shares = hours.agg(sf.max(sf.col("rate_max") / sf.col("limit")).alias("share"))
    rows: list[Row] = shares.sort("hour").toArrow().to_pylist()
    return rows


def minutes_of(results: Results, worst: NearLimit) -> list[Row]:
    """Return the rows of ``BUCKET_MINUTE`` of a bucket's worst day on its busiest broker."""
    minutes = _minutes(results)
    if minutes is None:
        return []
    for name in _BY_DAY:
        minutes = minutes.where(sf.col(name) == worst.day[name])
    rows: list[Row] = minutes.sort("ts").toArrow().to_pylist()
    return rows


def _minutes(results: Results) -> DataFrame | None:
    minutes = results.read(BUCKET_MINUTE)
    since, until = results.job.period()
    if minutes is not None and since:
        minutes = minutes.where((sf.col("dt") >= since.date()) & (sf.col("ts") >= since))
    if minutes is not None and until:
        minutes = minutes.where((sf.col("dt") <= until.date()) & (sf.col("ts") < until))
    return minutes
