"""Two plans of Spark that find the limit of each name in each hour, as ``resolve`` does."""

from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Slot
from app.pipeline.lake import Lake
from app.pipeline.resolve.limits import build_look_up, resolve
from app.pipeline.resolve.precedence import effective_level, first_hit, value_at
from app.pipeline.resolve.versions import count_versions, latest_versions
from app.pipeline.tables import QUOTA_VERSION, SERIES, Table

Answer = Mapping[tuple[int, str], tuple[int, int]]
"""By level and key: how many rows, and the sum of their limits, each at most 10^9."""

CAP = 10**9


def look_ups(session: SparkSession, data: Path, *, table: Table = SERIES, times: int = 1) -> Answer:
    """Do what ``resolve`` does with each row, the making and checking of its tables included.

    Args:
        session: Whose cores.
        data: Where the tables are.
        table: Whose rows are looked up: names, or observations.
        times: How often they are read, as if there were so many more of them.
    """
    versions = latest_versions(Lake(session, str(data)).read(QUOTA_VERSION)).persist()
    count_versions(versions)
    look_up = build_look_up(versions.coalesce(1), by_time=False).persist()
    frame = Lake(session, str(data)).read(table).withColumnRenamed("first_seen", "ts")
    frame = frame.select("cluster_id", "key", "user", "client_id", "ts")
    answer = _answer(resolve(reduce(DataFrame.unionByName, [frame] * times), look_up))
    for made in (versions, look_up):
        made.unpersist()
    return answer


def eight_joins(session: SparkSession, data: Path, *, table: Table = SERIES) -> Answer:
    """Join the quotas of each level on the names themselves, and take the first that is there."""
    versions = latest_versions(Lake(session, str(data)).read(QUOTA_VERSION)).cache()
    frame = Lake(session, str(data)).read(table).select("cluster_id", "key", "user", "client_id")
    for row in PRECEDENCE:
        slots = (("user", row.user), ("client_id", row.client_id))
        names = [name for name, slot in slots if slot is Slot.NAMED]
        on = ["cluster_id", "key", *names]
        quotas = versions.where(sf.col("level") == row.level)
        quotas = quotas.select(*on, sf.col("value").alias(f"v{row.level}"))
        frame = frame.join(sf.broadcast(quotas), on, "left")
    values = {row.level: f"v{row.level}" for row in PRECEDENCE}
    level = effective_level("user <> ''", "client_id <> ''", f"({first_hit(values)})", values)
    frame = frame.selectExpr("*", f"{level} AS `level`")
    frame = frame.selectExpr("*", f"{value_at('`level`', values)} AS `limit`")
    answer = _answer(frame)
    versions.unpersist()
    return answer


def _answer(resolved: DataFrame) -> Answer:
    """Count the rows, and sum up their limits."""
    capped = sf.floor(sf.least(sf.col("limit"), sf.lit(float(CAP)))).cast("bigint")
    groups = resolved.groupBy("level", "key").agg(sf.count(sf.lit(1)), sf.sum(capped))
    return {(level, key): (n, int(total or 0)) for level, key, n, total in groups.collect()}
