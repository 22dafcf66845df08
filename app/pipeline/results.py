"""The tables of ``resolve``, as the jobs after it read them, and how these write theirs.

They write a file for each day or cluster, whatever Spark's partitions.
"""

import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Self

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.errors import UsageError
from app.pipeline.job import READS, Job
from app.pipeline.lake import Lake, Partition, partitions_of, read_any, read_first
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, Table


@dataclass(frozen=True, slots=True)
class Scope:
    """What a run is about.

    Attributes:
        cluster: Its id; null is every cluster of the input.
        since: The first time; null is the input's.
        until: Exclusive; null is the input's.
    """

    cluster: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, job: Job) -> Self:
        """Read ``--cluster``, ``--from`` and ``--to``.

        Raises:
            UsageError: The period ends before it begins.
        """
        since, until = job.options.since, job.options.until
        if since and until and since >= until:
            message = "--to must be later than --from: the period would be empty."
            raise UsageError(message)
        return cls(job.options.cluster, since, until)

    def of_cluster(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the cluster."""
        return frame if self.cluster is None else frame.where(sf.col("cluster_id") == self.cluster)

    def days(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the cluster and of the days that touch the period; needs ``dt``."""
        chosen = self.of_cluster(frame)
        if self.since:
            chosen = chosen.where(sf.col("dt") >= self.since.date())
        if self.until:
            chosen = chosen.where(sf.col("dt") <= (self.until - timedelta.resolution).date())
        return chosen

    def minutes(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the cluster and the period; needs ``dt`` and ``ts``."""
        chosen = self.days(frame)
        if self.since:
            chosen = chosen.where(sf.col("ts") >= self.since)
        return chosen.where(sf.col("ts") < self.until) if self.until else chosen

    def has_day(self, cluster: str, day: date) -> bool:
        """Tell whether a day has a minute in the scope."""
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return (
            self.cluster in {None, cluster}
            and (self.until is None or begin < self.until)
            and (self.since is None or begin + timedelta(days=1) > self.since)
        )


def read_minutes(lakes: Sequence[Lake], scope: Scope) -> DataFrame:
    """Return the rows of ``BUCKET_MINUTE`` in the scope.

    Raises:
        UsageError: A lake has no such table.
    """
    return scope.minutes(read_first(lakes, BUCKET_MINUTE, BUCKET_MINUTE.order))


def read_buckets(lakes: Sequence[Lake], scope: Scope) -> DataFrame | None:
    """Return the rows of ``DIM_BUCKET``, merged over the lakes; null where none has it."""
    found = read_any(lakes, DIM_BUCKET)
    return None if found is None else merge_buckets(scope.of_cluster(found))


def merge_buckets(rows: DataFrame) -> DataFrame:
    """Return each bucket of ``DIM_BUCKET`` once, from its first to its last time."""
    names = [name for name in rows.columns if name not in {"first_seen", "last_seen"}]
    merged = rows.groupBy(*names).agg(
        sf.min("first_seen").alias("first_seen"), sf.max("last_seen").alias("last_seen")
    )
    return merged.select(*rows.columns)


def say_if_empty(job: Job) -> None:
    """Say it where the report counts no rows of the input."""
    if not job.counts["rows_in"]:
        job.say("the input has no minutes of this cluster and period.")


def days_of(lakes: Sequence[Lake], table: Table, scope: Scope) -> list[Partition]:
    """Return the partitions of a table by day that touch the scope, in order."""
    return [
        day
        for day in partitions_of(lakes, table)
        if scope.has_day(day["cluster_id"], date.fromisoformat(day["dt"]))
    ]


def usable_limit(limit: Column) -> Column:
    """Return the limit where a rate can be compared with it, else null.

    Other tools store NaN, zero and negative limits. A broker never finds a rate above NaN; the
    others have no sensible ratio.
    """
    return sf.when((limit > 0) & ~sf.isnan(limit), limit)


def throttle_ms() -> Column:
    """Return the longest throttling that was recorded in the minute, in ms; null for none."""
    return sf.greatest("throttle_ms_avg", "throttle_ms_max")


def is_throttled() -> Column:
    """Tell whether the broker throttled; never null."""
    return sf.coalesce(throttle_ms() > 0, sf.lit(False))


def is_over(share: float) -> Column:
    """Tell whether the highest rate was above this share of the limit; never null."""
    limit = sf.col("limit")
    return sf.coalesce(
        (sf.col("rate_max") > sf.lit(share) * limit) & ~sf.isnan(limit), sf.lit(False)
    )


def is_violating() -> Column:
    """Tell whether the broker throttled, or the highest rate was above the limit; never null."""
    return is_throttled() | is_over(1.0)


class BrokerCoverage(NamedTuple):
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


class Reach(NamedTuple):
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
    cluster = Window.partitionBy("cluster_id")
    first, last = sf.min("first").over(cluster), sf.max("last").over(cluster)
    expected = (sf.unix_seconds(last) - sf.unix_seconds(first)) / 60 + 1
    rows = brokers.withColumns({"expected": expected.cast("int"), "cluster_last": last})
    found = rows.select(*BrokerCoverage._fields).sort("cluster_id", "broker_id")
    return [BrokerCoverage(**row) for row in found.toArrow().to_pylist()]


def reach_of(brokers: Sequence[BrokerCoverage]) -> Reach:
    """Return how far the data of all brokers reach."""
    if not brokers:
        return Reach(None, None)
    share = sum(broker.minutes for broker in brokers) / sum(broker.expected for broker in brokers)
    return Reach(max(broker.last for broker in brokers) + timedelta(minutes=1), share)


def write_result(
    job: Job, frame: DataFrame, table: Table, out: Lake, replaces: Iterable[Partition] = ()
) -> None:
    """Write a table, one file for each of its partitions.

    Args:
        job: Gets the count of rows for its report; ``--explain`` prints the plan.
        frame: Has the columns of the table.
        table: Its layout.
        out: Where to.
        replaces: Partitions that this run is about: without rows they are empty afterwards.
    """
    spread = frame.repartition(*table.partitions)
    explain(job, table, spread)
    job.counts.setdefault("rows_out", {})[table.name] = out.write(spread, table, replaces)


def explain(job: Job, table: Table, frame: DataFrame) -> None:
    """Print the plan of what is written on the standard error, for ``--explain``."""
    if job.options.explain:
        with redirect_stdout(sys.stderr):
            print(f"-- {table.name}")
            frame.explain("formatted")


def carry_names(job: Job, lakes: Sequence[Lake], out: Lake, scope: Scope) -> DataFrame | None:
    """Merge the ``dim_bucket`` of the input into that of ``--out``, and return the rows.

    Later jobs and readers name entities by it. Null where neither lake has one.
    """
    if out.name in {lake.name for lake in lakes} or not any(lake.has(DIM_BUCKET) for lake in lakes):
        return read_buckets(lakes, scope)
    merged = read_buckets([*lakes, out], scope)
    if merged is not None:
        write_result(job, merged, DIM_BUCKET, out)
    return read_buckets([out], scope)


def say_plan(job: Job, writes: Sequence[Table]) -> None:
    """Say what the job would read and write, for ``--dry-run``.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has none of the tables.
    """
    tables = [(lake, table) for lake in job.lakes() for table in READS[job.name]]
    job.counts["would_read"] = [lake.address(table) for lake, table in tables if lake.has(table)]
    job.counts["would_write"] = [job.lake().address(table) for table in writes]
