"""Hours of buckets, how far data reach, and how much of their time brokers reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class BrokerCoverage:
    """One broker's minutes.

    Attributes:
        cluster_id: Whose broker.
        broker_id: Which.
        minutes: In which it reported anything.
        expected: From the first to the last minute in which any broker of its cluster did.
        last: Its last minute, UTC.
        cluster_last: The last of its cluster.
    """

    cluster_id: str
    broker_id: int
    minutes: int
    expected: int
    last: datetime
    cluster_last: datetime

    @property
    def share(self) -> float:
        """The share of the expected minutes in which it reported, 0 to 1."""
        return self.minutes / self.expected


@dataclass(frozen=True, slots=True)
class Reach:
    """How far data reach; both are null where there are no minutes.

    Attributes:
        data_through: The end of the last minute, UTC.
        coverage: The share of the brokers' expected minutes in which they reported, 0 to 1.
    """

    data_through: datetime | None
    coverage: float | None


def broker_coverage(minutes: DataFrame) -> list[BrokerCoverage]:
    """Return the coverage of each broker, in order of clusters and brokers.

    Args:
        minutes: Has ``cluster_id, broker_id, ts``: observations or buckets, one row or more for
            each minute in which a broker reported.
    """
    reported = minutes.select("cluster_id", "broker_id", "ts").distinct()
    brokers = reported.groupBy("cluster_id", "broker_id").agg(
        sf.count("ts").alias("minutes"), sf.min("ts").alias("first"), sf.max("ts").alias("last")
    )
    rows = brokers.sort("cluster_id", "broker_id").toArrow().to_pylist()
    spans: dict[str, tuple[datetime, datetime]] = {}
    for row in rows:
        first, last = spans.get(row["cluster_id"], (row["first"], row["last"]))
        spans[row["cluster_id"]] = min(first, row["first"]), max(last, row["last"])
    return [
        BrokerCoverage(
            row["cluster_id"],
            row["broker_id"],
            row["minutes"],
            (spans[row["cluster_id"]][1] - spans[row["cluster_id"]][0]) // _MINUTE + 1,
            row["last"],
            spans[row["cluster_id"]][1],
        )
        for row in rows
    ]


def reach_of(brokers: Sequence[BrokerCoverage]) -> Reach:
    """Return how far the data of all brokers reach."""
    if not brokers:
        return Reach(None, None)
    expected = sum(broker.expected for broker in brokers)
    share = sum(broker.minutes for broker in brokers) / expected
    return Reach(max(broker.last for broker in brokers) + _MINUTE, share)


def bucket_hours(minutes: DataFrame) -> DataFrame:
    """Return the hours of buckets on brokers, as ``BUCKET_HOUR`` has them.

    Rates are averaged as decimals: the result is the same whatever the order of the rows.

    Args:
        minutes: The columns of ``BUCKET_MINUTE``.
    """
    keys = ("cluster_id", "dt", "broker_id", "key", "bucket_id")
    hours = minutes.groupBy(*keys, sf.date_trunc("hour", "ts").alias("hour"))
    return hours.agg(
        sf.avg(sf.col("rate_avg").try_cast("decimal(30,6)")).cast("double").alias("rate_avg"),
        sf.max("rate_max").alias("rate_max"),
        sf.max_by("limit", "ts").alias("limit"),
        sf.max(sf.coalesce("throttle_ms_max", "throttle_ms_avg")).alias("throttle_ms_max"),
        sf.count(sf.lit(1)).cast("int").alias("minutes"),
    )
