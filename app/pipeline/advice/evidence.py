"""The hours that advice rests on, and their rows."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from os import cpu_count
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from app.pipeline.advice.use import MOST_DAYS, grouped, reported_minutes, with_reported
from app.pipeline.by_partition import of_all_rows
from app.pipeline.lake import Lake, read_first
from app.pipeline.local_tables import local_partitions
from app.pipeline.partitions import Partition, days_of
from app.pipeline.results import Reach, Scope, broker_coverage, end_of, reach_of
from app.pipeline.tables import BUCKET_HOUR, BY_DAY, DIM_BUCKET, Table

_HOURS_OF_TASK: Final = 150_000
"""About so many hours of buckets are summed up at once, by one task."""

_HOUR_COLUMNS: Final = (
    *("cluster_id", "dt", "hour", "broker_id", "key", "bucket_id", "level", "limit", "minutes"),
    *("rate_avg", "rate_max", "throttled_minutes", "present", "bins"),
)

Function = Callable[[pa.Table], pa.Table]
"""Takes and returns columns; without rows, too, which shows the columns that it returns."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table: columns of this process, or what only Spark's tasks can read.

    Functions are the same for both: they take all rows at once, or shares of them.
    """

    _found: pa.Table | DataFrame

    def map(self, function: Function) -> pa.Table:
        """Return what a function makes of shares, one after the other."""
        if isinstance(self._found, pa.Table):
            return function(self._found)
        return _in_tasks(self._found, function)

    def reduce(self, function: Function) -> pa.Table:
        """Return what a function makes of all rows: it is called with its own results, too."""
        return function(self.map(function))

    def map_buckets(self, function: Function) -> pa.Table:
        """Return what a function makes of shares, each of which has all rows of its buckets."""
        if isinstance(self._found, pa.Table):
            return _in_threads(self._found, function)
        number = -(-self._found.count() // _HOURS_OF_TASK) or 1
        return _in_tasks(self._found.repartition(number, "bucket_id"), function)

    def of_buckets(self, ids: pa.ChunkedArray) -> "Rows":
        """Return the rows of some buckets."""
        if isinstance(self._found, pa.Table):
            return Rows(self._found.filter(pc.is_in(self._found["bucket_id"], ids)))
        wanted = self._found.sparkSession.createDataFrame(pa.table({"bucket_id": ids}))
        return Rows(self._found.join(sf.broadcast(wanted), "bucket_id", "left_semi"))


def _in_tasks(frame: DataFrame, function: Function) -> pa.Table:
    schema = from_arrow_schema(function(frame.limit(0).toArrow()).schema)
    return frame.mapInArrow(of_all_rows(function), schema).toArrow()


def _in_threads(rows: pa.Table, function: Function) -> pa.Table:
    """Take several shares at once: Arrow and numpy hold up no other thread."""
    number = -(-rows.num_rows // _HOURS_OF_TASK) or 1
    share = rows["bucket_id"].to_numpy() % number
    with ThreadPoolExecutor(cpu_count()) as threads:
        chosen = (pa.array(share == each) for each in range(number))
        return pa.concat_tables(list(threads.map(lambda own: function(rows.filter(own)), chosen)))


_MOST_BYTES: Final = 2**28
"""Of files whose columns the job holds itself."""


def rows_of(
    lakes: Sequence[Lake], table: Table, partitions: Sequence[Partition], names: Sequence[str]
) -> Rows:
    """Return columns of partitions of a table; of lakes that overlap the first counts."""
    here = local_partitions(lakes, table, partitions, names)
    if here is not None and here.size() <= _MOST_BYTES:
        return Rows(here.read_all())
    return Rows(read_first(lakes, table, partitions).select(*names))


@dataclass(frozen=True)
class Evidence:
    """Hours of clusters that have data, in their order."""

    lakes: Sequence[Lake]
    of_clusters: Mapping[str, Sequence[Partition]]

    @classmethod
    def of(
        cls, lakes: Sequence[Lake], scope: Scope, days: int, table: Table = BUCKET_HOUR
    ) -> "Evidence":
        """Find the newest days of each cluster, or those of the scope where it has a beginning.

        A table says which hours have data.
        """
        within = timedelta(days=MOST_DAYS if scope.since else days)
        of_clusters = {}
        for cluster, hours in groupby(scope.hours(lakes, table), itemgetter("cluster_id")):
            listed = [*hours]
            before = date.fromisoformat(listed[-1]["dt"]) - within
            of_clusters[cluster] = [hour for hour in listed if hour["dt"] > f"{before}"]
        return cls(lakes, of_clusters)

    @property
    def hours(self) -> list[Partition]:
        """Those of all clusters."""
        return [*chain(*self.of_clusters.values())]

    @property
    def clusters(self) -> list[Partition]:
        """The clusters that have data, as partitions."""
        return [{"cluster_id": name} for name in self.of_clusters]

    @property
    def days(self) -> Mapping[str, int]:
        """How many days of each cluster have data."""
        return {name: len(days_of(hours)) for name, hours in self.of_clusters.items()}

    def period(self, cluster: str) -> tuple[datetime, datetime]:
        """Return the start of the first hour of a cluster and the end of its last one."""
        first, last = (end_of(self.of_clusters[cluster][at]) for at in (0, -1))
        return first - timedelta(hours=1), last

    def rows(
        self, table: Table, names: Sequence[str], hours: Sequence[Partition] | None = None
    ) -> Rows:
        """Return columns of all hours or some of them, or of the days that they are of."""
        partitions = self.hours if hours is None else hours
        if table.partitions == BY_DAY:
            partitions = days_of(partitions)
        return rows_of(self.lakes, table, partitions, names)

    @cached_property
    def bucket_hours(self) -> Rows:
        """The columns of hours of buckets that advice follows from."""
        return self.rows(BUCKET_HOUR, _HOUR_COLUMNS)

    def map_buckets(self, function: Function) -> pa.Table:
        """Return what a function makes of the hours of buckets, of each of all of its hours.

        They have ``age``, too (days before the cluster's newest), and ``reported`` (minutes in
        which the broker reported anything in that hour).
        """
        reported = self.bucket_hours.reduce(reported_minutes)
        newest = {name: hours[-1]["dt"] for name, hours in self.of_clusters.items()}
        return self.bucket_hours.map_buckets(
            lambda hours: function(with_reported(hours, reported, newest))
        )

    def reach(self) -> Reach:
        """Return how far the data reach."""
        return reach_of(broker_coverage(read_first(self.lakes, BUCKET_HOUR, self.hours)))


def tags_of(evidence: Evidence, buckets: pa.Table) -> pa.Table:
    """Add ``bucket_user`` and ``bucket_client`` to buckets.

    They have ``last_day``, on which the bucket was there.
    """
    tags = ["bucket_user", "bucket_client"]
    days = {f"{day}" for day in buckets["last_day"].unique().to_pylist()}
    hours = [hour for hour in evidence.hours if hour["dt"] in days]
    ids = buckets["bucket_id"].combine_chunks()

    def named(names: pa.Table) -> pa.Table:
        # The same at all levels of all hours, and no two clusters have a bucket in common.
        own = names.filter(pc.is_in(names["bucket_id"], ids))
        return grouped(own, ["bucket_id"], {}, tags)

    found = evidence.rows(DIM_BUCKET, ["bucket_id", *tags], hours).reduce(named)
    return buckets.join(found, "bucket_id", join_type="inner")
