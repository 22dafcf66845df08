"""What the jobs after ``resolve`` have in common: their scope, their days, how far data reach."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, Self, TypeVar

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.by_partition import Columns, Reading, by_partition
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folder_writer import ByTasks
from app.pipeline.folders import retried
from app.pipeline.job import Job
from app.pipeline.lake import Lake, partitions_of
from app.pipeline.partitions import Partition, days_of
from app.pipeline.tables import BUCKET_HOUR, DIM_BUCKET, Table


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
        """Read ``--cluster``, and ``--from`` and ``--to`` as whole hours that hold them.

        Raises:
            UsageError: The period ends before it begins.
        """
        since, until = job.options.since, job.options.until
        # Hours are replaced as a whole.
        since = since and since.replace(minute=0, second=0, microsecond=0)
        until = until and until + (datetime.min.replace(tzinfo=UTC) - until) % timedelta(hours=1)
        if since and until and since >= until:
            message = "--to must be later than --from: the period would be empty."
            raise UsageError(message)
        return cls(job.options.cluster, since, until)

    def of_cluster(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the cluster."""
        return frame if self.cluster is None else frame.where(sf.col("cluster_id") == self.cluster)

    def of_days(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the cluster and of the days that touch the period; needs ``dt``."""
        chosen = self.of_cluster(frame)
        if self.since:
            chosen = chosen.where(sf.col("dt") >= self.since.date())
        if self.until:
            chosen = chosen.where(sf.col("dt") <= (self.until - timedelta.resolution).date())
        return chosen

    def hours(self, lakes: Sequence[Lake], table: Table) -> list[Partition]:
        """Return the hours of a table in all lakes that are in the scope; no others are listed."""
        found = partitions_of(lakes, table, self._partitions())
        return [hour for hour in found if self.has(hour)]

    def _partitions(self) -> list[Partition] | None:
        """Return where to look, as ``Lake.read_in`` takes it; null is everywhere."""
        of_cluster = {"cluster_id": self.cluster} if self.cluster else {}
        if not (self.since and self.until):
            return [of_cluster] if of_cluster else None
        number = (self.until - self.since) // timedelta(hours=1)
        times = [self.since + timedelta(hours=each) for each in range(number)]
        return [{**of_cluster, "dt": f"{at:%Y-%m-%d}", "hour": f"{at.hour}"} for at in times]

    def has(self, hour: Partition) -> bool:
        """Tell whether an hour of a cluster is in the scope."""
        begin = end_of(hour) - timedelta(hours=1)
        return (
            self.cluster in {None, hour["cluster_id"]}
            and (self.until is None or begin < self.until)
            and (self.since is None or begin >= self.since)
        )


def end_of(hour: Partition) -> datetime:
    """Return the end of an hour of a cluster, exclusive."""
    begin = datetime.fromisoformat(hour["dt"]).replace(hour=int(hour["hour"]), tzinfo=UTC)
    return begin + timedelta(hours=1)


def merge_buckets(rows: DataFrame) -> DataFrame:
    """Return each bucket of ``DIM_BUCKET`` once, from its first to its last time."""
    of_hour = {"dt", "hour", "first_seen", "last_seen"}
    names = [name for name in DIM_BUCKET.columns if name not in of_hour]
    return rows.groupBy(*names).agg(
        sf.min("first_seen").alias("first_seen"), sf.max("last_seen").alias("last_seen")
    )


_BYTES_OF_NAMES: Final = 2**30


def say_if_empty(job: Job) -> None:
    """Say it where the report counts no rows of the input."""
    if not job.counts["rows_in"]:
        job.say("the input has no minutes of this cluster and period.")


class Hours:
    """The hours that days are summed up from; of lakes that overlap the first counts.

    Attributes:
        revision: Of what follows from the hours that were read last.
    """

    def __init__(self, lakes: Sequence[Lake], out: Lake, table: Table) -> None:
        self.lakes = lakes
        self._out = out
        self._table = table
        self._listed: list[tuple[Sequence[Partition], list[set[str]]]] = []
        self.revision = ""

    def remember(self, days: Sequence[Partition]) -> None:
        """Name a revision of what follows from days that are about to be read."""
        self.revision = self._out.next_revision(self._table, days)
        self._listed.append((days, self._files(days)))

    def having(self, days: Sequence[Partition]) -> list[Partition]:
        """Return those of the days that have hours, and remember their files."""
        if not days:
            return []
        self._listed.append((days, self._files(days)))
        return days_of(partitions_of(self.lakes, BUCKET_HOUR, days))

    def last_before(self, day: Partition) -> list[Partition]:
        """Return the last day before one that has hours, if any."""
        yesterday = date.fromisoformat(day["dt"]) - timedelta(days=1)
        if found := self.having([{**day, "dt": f"{yesterday}"}]):
            return found
        cluster = {"cluster_id": day["cluster_id"]}
        days = days_of(partitions_of(self.lakes, BUCKET_HOUR, [cluster]))
        return [item for item in days if item["dt"] < day["dt"]][-1:]

    def are_replaced(self) -> bool:
        """Tell whether a run has written an hour of these days since they were read."""
        return any(self._files(days) != files for days, files in self._listed)

    def _files(self, days: Sequence[Partition]) -> list[set[str]]:
        return [lake.files(BUCKET_HOUR, days) for lake in self.lakes]


_ATTEMPTS: Final = 100
Result = TypeVar("Result")


def settled(
    lakes: Sequence[Lake], out: Lake, table: Table, write: Callable[[Hours], Result]
) -> Result:
    """Sum up days from hours, until no other run has replaced one of them meanwhile.

    So whoever writes a day last has seen all of its hours: that is what lets runs of other hours go
    on at the same time. Each of them writes its hours once, so this ends.

    Args:
        write: Reads hours, and writes days as their revision.

    Raises:
        InfrastructureError: Spark fails, or other runs do not stop to replace these hours.
    """

    def sum_up() -> tuple[Result, bool]:
        hours = Hours(lakes, out, table)
        result = write(hours)
        return result, hours.are_replaced()

    for _ in range(_ATTEMPTS):
        result, is_outdated = retried(sum_up)
        if not is_outdated:
            return result
    message = "Other runs replace hours of these days: run again once they have ended."
    raise InfrastructureError(message)


class BrokerCoverage(NamedTuple):
    """One broker's minutes.

    Attributes:
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


def broker_coverage(hours: DataFrame) -> list[BrokerCoverage]:
    """Return the coverage of each broker, in order of clusters and brokers.

    Args:
        hours: Has ``cluster_id, dt, hour, broker_id, present``: one row or more for each hour in
            which a broker reported, with the bits of its minutes.
    """
    present = hours.groupBy("cluster_id", "dt", "hour", "broker_id").agg(
        sf.bit_or("present").alias("present")
    )
    start = "unix_date(dt) * 1440L + hour * 60"
    brokers = present.groupBy("cluster_id", "broker_id").agg(
        sf.sum(sf.bit_count("present")).alias("minutes"),
        sf.min(sf.expr(f"{start} + bit_count((present & -present) - 1)")).alias("first"),
        sf.max(sf.expr(f"{start} + length(bin(present)) - 1")).alias("last"),
    )
    cluster = Window.partitionBy("cluster_id")
    first, last = sf.min("first").over(cluster), sf.max("last").over(cluster)
    rows = brokers.withColumns(
        {
            "expected": (last - first + 1).cast("int"),
            "cluster_last": sf.timestamp_seconds(last * 60),
            "minutes": sf.col("minutes").cast("int"),
        }
    ).withColumn("last", sf.timestamp_seconds(sf.col("last") * 60))
    found = rows.select(*BrokerCoverage._fields).sort("cluster_id", "broker_id")
    return [BrokerCoverage(**row) for row in found.toArrow().to_pylist()]


def reach_of(brokers: Sequence[BrokerCoverage]) -> Reach:
    """Return how far the data of all brokers reach."""
    if not brokers:
        return Reach(None, None)
    share = sum(broker.minutes for broker in brokers) / sum(broker.expected for broker in brokers)
    return Reach(max(broker.last for broker in brokers) + timedelta(minutes=1), share)


def explain(job: Job, table: Table, rows: DataFrame | ByTasks) -> None:
    """Print the plan of what is written on the standard error, for ``--explain``."""
    if job.options.explain:
        frame = rows.rows(table.ddl) if isinstance(rows, ByTasks) else rows
        with redirect_stdout(sys.stderr):
            print(f"-- {table.name}")
            frame.explain("formatted")


def carry_names(job: Job, lakes: Sequence[Lake], out: Lake, hours: Sequence[Partition]) -> None:
    """Copy the ``dim_bucket`` of hours of the input to ``--out``, unless it is an input.

    Later jobs and readers name entities by it.
    """
    if out.name in {lake.name for lake in lakes}:
        return
    by = [(name, "ascending") for name in DIM_BUCKET.order]
    reading = Reading([Columns(DIM_BUCKET, DIM_BUCKET.columns)], _BYTES_OF_NAMES)
    names = by_partition(lakes, reading, hours, lambda _, buckets: buckets.sort_by(by))
    job.counts.setdefault("rows_out", {})[DIM_BUCKET.name] = out.write(names, DIM_BUCKET)
