"""The tables of ``resolve``, as the jobs after it read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.pipeline.folders import Partition, has_table
from app.pipeline.job import Job
from app.pipeline.storage import read_table
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, Table


@dataclass(frozen=True, slots=True)
class Scope:
    """What a run is about.

    Attributes:
        cluster: Its id; null is every cluster of the input.
        since: The first moment; null is the input's.
        until: The moment after the last; null is the input's.
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
        return cls(job.options.cluster, *job.period())

    def of_cluster(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the cluster."""
        return frame if self.cluster is None else frame.where(sf.col("cluster_id") == self.cluster)

    def minutes(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the cluster and the period; needs ``dt`` and ``ts``."""
        chosen = self.of_cluster(frame)
        if self.since:
            begun = (sf.col("dt") >= self.since.date()) & (sf.col("ts") >= self.since)
            chosen = chosen.where(begun)
        if self.until:
            chosen = chosen.where((sf.col("dt") <= self.until.date()) & (sf.col("ts") < self.until))
        return chosen

    def has_day(self, cluster: str, day: date) -> bool:
        """Tell whether a day has a minute in the scope."""
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return (
            self.cluster in {None, cluster}
            and (self.until is None or begin < self.until)
            and (self.since is None or begin + timedelta(days=1) > self.since)
        )


def read_minutes(session: SparkSession, folders: Sequence[Path], scope: Scope) -> DataFrame:
    """Return the rows of ``BUCKET_MINUTE`` in the scope.

    Raises:
        UsageError: A folder has no such table.
    """
    return scope.minutes(read_table(session, folders, BUCKET_MINUTE))


def read_buckets(session: SparkSession, folders: Sequence[Path], scope: Scope) -> DataFrame | None:
    """Return the rows of ``DIM_BUCKET``, merged over the folders; null where none has it."""
    having = [folder for folder in dict.fromkeys(folders) if has_table(folder, DIM_BUCKET)]
    if not having:
        return None
    rows = scope.of_cluster(read_table(session, having, DIM_BUCKET))
    names = [name for name in rows.columns if name not in {"first_seen", "last_seen"}]
    merged = rows.groupBy(*names).agg(
        sf.min("first_seen").alias("first_seen"), sf.max("last_seen").alias("last_seen")
    )
    return merged.select(*rows.columns)


def days_of(folders: Sequence[Path], table: Table, scope: Scope) -> list[Partition]:
    """Return the published partitions of a table by day that touch the scope, in order."""
    places = {
        str(path.relative_to(folder / table.name))
        for folder in folders
        for path in (folder / table.name).glob("cluster_id=*/dt=*")
    }
    days = [partition_of(place) for place in sorted(places)]
    return [day for day in days if scope.has_day(day["cluster_id"], date.fromisoformat(day["dt"]))]


def partition_of(place: str) -> Partition:
    """Read ``cluster_id=…/dt=…`` as Spark writes it."""
    parts = (part.partition("=") for part in place.split("/"))
    return {name: unquote(value) for name, _, value in parts}
