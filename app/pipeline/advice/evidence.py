"""The hours that advice rests on, and what each bucket used in them on each broker."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType

from app.domain.entities import ClientQuotaEntity
from app.domain.plan_impact import BIN_RATIO, ZERO_BIN
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, days_of, read_first, schema_of
from app.pipeline.local_tables import local_columns
from app.pipeline.results import Reach, Scope, broker_coverage, end_of, explain, reach_of
from app.pipeline.tables import BUCKET_HOUR, BY_DAY, DIM_BUCKET, Table
from app.pipeline.usage.measures import Numbers, begins_of

MOST_DAYS: Final = 1_000
"""So many days are looked at, at most."""

_HOURS_OF_TASK: Final = 150_000
"""About so many hours of buckets are summed up at once, by one task."""

_BIN_BITS: Final = 20
_AGE_BITS: Final = 10
_OFFSET: Final = 2 ** (_BIN_BITS - 1)
"""Makes bins positive; 0 is left for a rate of zero."""

_LN_RATIO: Final = math.log(BIN_RATIO)
_HALF: Final = 0.5
_WEIGHT: Final = 1_024
"""Of the newest day: weights are whole numbers, so that sums do not depend on their order."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hours that have data.

    Attributes:
        lakes: Where they are.
        hours: Which, of all clusters.
        newest: The last day of each cluster.
    """

    lakes: Sequence[Lake]
    hours: Sequence[Partition]
    newest: Mapping[str, date]
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _columns: dict[str, pa.Table | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls, lakes: Sequence[Lake], scope: Scope, days: int, table: Table = BUCKET_HOUR
    ) -> "Evidence":
        """Find the newest days of each cluster, or those of the scope where it has a beginning.

        Args:
            lakes: Where the tables are.
            scope: Which hours may count.
            days: How many, up to the newest one that has an hour.
            table: Has an hour wherever there are data.
        """
        found = scope.hours(lakes, table)
        newest: dict[str, date] = {}
        for hour in found:
            day = date.fromisoformat(hour["dt"])
            newest[hour["cluster_id"]] = max(day, newest.get(hour["cluster_id"], day))
        within = timedelta(days=MOST_DAYS if scope.since else days)
        hours = [
            hour
            for hour in found
            if newest[hour["cluster_id"]] - date.fromisoformat(hour["dt"]) < within
        ]
        return cls(lakes, hours, newest)

    def say_if_empty(self, job: Job) -> None:
        """Say it where there are no hours."""
        if not self.hours:
            job.say("the input has no hours of this cluster and period.")

    @property
    def clusters(self) -> list[Partition]:
        """The clusters that have data, as partitions."""
        return [{"cluster_id": name} for name in sorted(self.newest)]

    @property
    def days(self) -> Mapping[str, int]:
        """How many days of each cluster have data."""
        days = {(hour["cluster_id"], hour["dt"]) for hour in self.hours}
        return {name: sum(1 for cluster, _ in days if cluster == name) for name in self.newest}

    def period(self, cluster: str) -> tuple[datetime, datetime]:
        """Return the start of the first hour of a cluster and the end of its last one."""
        times = [end_of(hour) for hour in self.hours if hour["cluster_id"] == cluster]
        return min(times) - timedelta(hours=1), max(times)

    def read(self, table: Table) -> DataFrame:
        """Return the rows of a table of these hours; of lakes that overlap the first counts."""
        if table.name not in self._frames:
            # Listing the folders of hundreds of hours takes a second.
            self._frames[table.name] = read_first(self.lakes, table, self.hours)
        return self._frames[table.name]

    def columns(self, table: Table, names: Sequence[str]) -> pa.Table | None:
        """Return columns of a table of these hours where they are at hand; null: ask Spark.

        Args:
            table: Which; of days it is those that the hours are of.
            names: Of the columns.
        """
        partitions = days_of(self.hours) if table.partitions == BY_DAY else self.hours
        return local_columns(self.lakes, table, partitions, names)

    def bucket_hours(self) -> pa.Table | None:
        """Return the columns of ``HOUR_COLUMNS`` where they are at hand; null: ask Spark."""
        name = BUCKET_HOUR.name
        if name not in self._columns:
            self._columns[name] = self.columns(BUCKET_HOUR, HOUR_COLUMNS)
        return self._columns[name]

    def reach(self) -> Reach:
        """Return how far the data reach."""
        return reach_of(broker_coverage(self.read(BUCKET_HOUR)))

    def weights(self, halving_days: float | None) -> list[int]:
        """Return the weight of a day by its age in days; all are 1 without a half-life."""
        if halving_days is None:
            return [1] * MOST_DAYS
        return [max(1, round(_WEIGHT * 2 ** (-age / halving_days))) for age in range(MOST_DAYS)]


def tags_of(evidence: Evidence, buckets: pa.Table) -> pa.Table:
    """Add ``bucket_user`` and ``bucket_client`` to buckets.

    Args:
        evidence: Has names of buckets.
        buckets: Has ``cluster_id``, ``bucket_id``; ``last_hour``, where an hour of the bucket is
            known, saves a look at the others.
    """
    tags = ["bucket_user", "bucket_client"]
    rows = evidence.columns(DIM_BUCKET, ["bucket_id", *tags])
    if rows is None:
        rows = _tags_by_spark(evidence, buckets, tags)
    # Names are the same at all levels of an hour, and no two clusters have a bucket in common.
    ids, first = np.unique(rows["bucket_id"].to_numpy(), return_index=True)
    own = buckets["bucket_id"].to_numpy()
    named = buckets.filter(pa.array(np.isin(own, ids)))
    at = pa.array(first[np.searchsorted(ids, named["bucket_id"].to_numpy())])
    for tag in tags:
        named = named.append_column(tag, rows[tag].take(at).combine_chunks())
    return named


def _tags_by_spark(evidence: Evidence, buckets: pa.Table, tags: Sequence[str]) -> pa.Table:
    same = ["cluster_id", "bucket_id"]
    where = [*same, *({"last_hour"} & {*buckets.column_names})]
    names = evidence.read(DIM_BUCKET).withColumn("last_hour", sf.expr("unix_date(dt) * 24 + hour"))
    session, hours = evidence.lakes[0].session, buckets.select(where)
    wanted = session.createDataFrame(hours if hours.num_rows else [], names.select(where).schema)
    found = names.join(sf.broadcast(wanted), where, "left_semi")
    return found.select("bucket_id", *tags).toArrow()


def quota_columns(entity: ClientQuotaEntity | None) -> dict[str, Any]:
    """Return the columns that name the entity of a quota; those of none are empty."""
    names = {} if entity is None else entity.as_dict()
    columns: dict[str, Any] = {}
    for kind, column in (("user", "quota_user"), ("client-id", "quota_client")):
        name = "quota_user" if kind == "user" else "quota_client_id"
        columns[name] = names.get(kind) or ""
        columns[f"{column}_default"] = kind in names and names[kind] is None
    return columns


def write_advice(job: Job, table: Table, rows: pa.Table, clusters: Sequence[Partition]) -> int:
    """Replace the advice about clusters, and count it into the report.

    Args:
        job: Writes it.
        table: Which.
        rows: As ``whole_table`` returns them.
        clusters: All whose rows are replaced.
    """
    lake = job.lake()
    frame = frame_of(job.session, table, rows).coalesce(1)
    explain(job, table, frame)
    having = set(rows["cluster_id"].unique().to_pylist())
    filled = [item for item in clusters if item["cluster_id"] in having]
    count = lake.write(frame, table, clusters, filled=filled)
    job.counts.setdefault("rows_out", {})[table.name] = count
    return count


def frame_of(session: SparkSession, table: Table, rows: pa.Table) -> DataFrame:
    """Return rows as a frame."""
    # Arrow without rows has no batch that would tell Spark the columns.
    return session.createDataFrame(rows if rows.num_rows else [], schema_of(table))


def rows_to_table(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as columns of a table; what is missing is null."""
    written = list(rows)
    return whole_table(table, {name: [row.get(name) for row in written] for name in table.columns})


def whole_table(table: Table, columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as a table has them.

    Args:
        table: Which.
        columns: By name; one value stands for all rows, and what is missing is null.
    """
    number = max((len(column) for column in columns.values()), default=0)
    if any(not len(column) for column in columns.values()):
        number = 0
    whole = {}
    for each in schema_of(table):
        kind = to_arrow_type(each.dataType)
        values = columns.get(each.name, [None])
        if len(values) != number:
            values = [values[0]] * number if len(values) else []
        if isinstance(values, pa.Array | pa.ChunkedArray):
            whole[each.name] = values.cast(kind)
        else:
            whole[each.name] = pa.array(values, kind)
    return pa.table(whole)


HOUR_COLUMNS: Final = (
    *("cluster_id", "dt", "hour", "broker_id", "key", "bucket_id", "level", "limit", "minutes"),
    *("rate_avg", "rate_max", "throttled_minutes", "present", "bins"),
)
"""Of ``BUCKET_HOUR``."""


def map_buckets(evidence: Evidence, summed: Callable[[pa.Table], pa.Table], ddl: str) -> pa.Table:
    """Sum up the hours of buckets: here, or in tasks that have all hours of their buckets.

    Args:
        evidence: Has hours of buckets.
        summed: Takes the columns of ``HOUR_COLUMNS``, ``age`` (days before the cluster's newest)
            and ``reported`` (minutes in which the broker reported anything in that hour). Its rows
            are those of its buckets alone.
        ddl: What it returns.
    """
    here = evidence.bucket_hours()
    if here is not None:
        if not here.num_rows:
            return arrow_schema_of(ddl).empty_table()
        return _summed_here(Reported.of(here, evidence.newest).added(here), summed)
    hours = evidence.read(BUCKET_HOUR)
    of_broker = hours.groupBy("cluster_id", "dt", "hour", "broker_id").agg(
        sf.bit_or("present").alias("present"), sf.count(sf.lit(1)).alias("hours")
    )
    counted = of_broker.toArrow()
    number = int(counted["hours"].to_numpy().sum())
    reported = Reported.of(counted, evidence.newest)

    def sum_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        listed = [batch for batch in batches if batch.num_rows]
        if listed:
            yield from summed(reported.added(pa.Table.from_batches(listed))).to_batches()

    return divide(hours.select(*HOUR_COLUMNS), number).mapInArrow(sum_up, ddl).toArrow()


def _summed_here(hours: pa.Table, summed: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Sum up shares of the buckets, several at once: Arrow and numpy hold up no other thread."""
    number = -(-hours.num_rows // _HOURS_OF_TASK)
    share = hours["bucket_id"].to_numpy() % number
    chosen = (pa.array(share == each) for each in range(number))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        tables = threads.map(lambda own: summed(hours.filter(own)), chosen)
        return pa.concat_tables(list(tables))


def arrow_schema_of(ddl: str) -> pa.Schema:
    """Return columns as Arrow has them."""
    return to_arrow_schema(cast("StructType", StructType.fromDDL(ddl)))


def divide(hours: DataFrame, number: int) -> DataFrame:
    """Divide hours of buckets into tasks, each with all hours of its buckets."""
    return hours.repartition(-(-number // _HOURS_OF_TASK) or 1, "bucket_id")


def hours_of_epoch(hours: pa.Table) -> Numbers:
    """Return the number of each hour since the epoch."""
    days: Numbers = hours["dt"].cast(pa.int32()).to_numpy().astype(np.int64)
    times: Numbers = days * _HOURS_OF_DAY + hours["hour"].to_numpy()
    return times


_HOURS_OF_DAY: Final = 24


@dataclass(frozen=True, slots=True)
class Reported:
    """In how many minutes of each hour brokers reported anything.

    Attributes:
        newest: The last day of each cluster, in days since the epoch.
        clusters: In order; the number of each is its index.
        brokers: Ids, in order.
        since: The first hour.
        span: How many hours there are.
        positions: Of cluster, hour and broker, in order.
        minutes: Of each position.
    """

    newest: Sequence[int]
    clusters: Sequence[str]
    brokers: Numbers
    since: int
    span: int
    positions: Numbers
    minutes: Numbers

    @classmethod
    def of(cls, found: pa.Table, newest: Mapping[str, date]) -> "Reported":
        """Count them.

        Args:
            found: Has ``cluster_id, dt, hour, broker_id, present``, as ``BUCKET_HOUR`` has it.
            newest: The last day of each cluster.
        """
        times, brokers = hours_of_epoch(found), np.unique(found["broker_id"].to_numpy())
        since = int(times.min(initial=2**31))
        span = int(times.max(initial=since)) - since + 1
        clusters = sorted(newest)
        days = [(newest[name] - date(1970, 1, 1)).days for name in clusters]
        nothing = np.zeros(0, np.int64)
        empty = cls(days, clusters, brokers, since, span, nothing, nothing)
        positions = empty.positions_of(found)
        if not len(positions):
            return empty
        order = np.argsort(positions)
        begins = begins_of(positions[order])
        bits = np.bitwise_or.reduceat(found["present"].to_numpy()[order], begins)
        minutes = np.bitwise_count(bits).astype(np.int64)
        return replace(empty, positions=positions[order][begins], minutes=minutes)

    def positions_of(self, rows: pa.Table) -> Numbers:
        """Return where the cluster, hour and broker of each row are."""
        time = hours_of_epoch(rows) - self.since
        broker = np.searchsorted(self.brokers, rows["broker_id"].to_numpy())
        found: Numbers = (self._clusters_of(rows) * self.span + time) * len(self.brokers) + broker
        return found

    def _clusters_of(self, rows: pa.Table) -> Numbers:
        names = rows["cluster_id"].combine_chunks().dictionary_encode()
        numbers = [self.clusters.index(name) for name in names.dictionary.to_pylist()]
        clusters: Numbers = np.array(numbers, np.int64)[names.indices.to_numpy()]
        return clusters

    def added(self, hours: pa.Table) -> pa.Table:
        """Add ``age`` and ``reported`` to hours."""
        newest = np.array(self.newest, np.int64)[self._clusters_of(hours)]
        age = newest - hours["dt"].cast(pa.int32()).to_numpy()
        at = np.searchsorted(self.positions, self.positions_of(hours))
        return hours.append_column("age", pa.array(age)).append_column(
            "reported", pa.array(self.minutes[at])
        )


@dataclass(frozen=True, slots=True)
class UseOnBrokers:
    """What buckets used on each broker, in order of key, bucket and broker.

    Attributes:
        hours: In that order, then by time.
        begins: Where the hours of a bucket on a broker begin.
        key: The number of each hour's key.
    """

    hours: pa.Table
    begins: Numbers
    key: Numbers

    @classmethod
    def of(cls, hours: pa.Table) -> "UseOnBrokers":
        """Put hours in order.

        Args:
            hours: A group of ``grouped_hours``.
        """
        encoded = hours["key"].combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        key = np.argsort(np.argsort(np.array(names)))[encoded.indices.to_numpy()]
        columns = [_numbers(hours, name) for name in ("hour", "age", "broker_id", "bucket_id")]
        columns[1] = -columns[1]
        order = np.lexsort([*columns, key])
        ordered = hours.take(order).combine_chunks()
        begins = begins_of(
            key[order], _numbers(ordered, "bucket_id"), _numbers(ordered, "broker_id")
        )
        return cls(ordered, begins, key[order])

    def table(self, percent: int, weights: Sequence[int]) -> pa.Table:
        """Return what each bucket used on each broker.

        Returns:
            ``cluster_id, key, bucket_id, broker_id``; ``level`` and ``limit`` of the last hour;
            ``minutes``, ``expected`` (that the broker reported in the hours of the bucket) and
            ``throttled``; ``p95`` and ``rate`` (at the percentile), the middle of their bins;
            ``peak``.
        """
        begins = self.begins
        ends = np.append(begins[1:], self.hours.num_rows) - 1
        peak = np.maximum.reduceat(_numbers(self.hours, "rate_max"), begins)
        p95, rate = self._rates((95, percent), np.array(weights, np.int64), peak)
        last = self.hours.select(["cluster_id", "key", "bucket_id", "broker_id", "level", "limit"])
        sums = {
            name: np.add.reduceat(_numbers(self.hours, column).astype(np.int64), begins)
            for name, column in (
                ("minutes", "minutes"),
                ("expected", "reported"),
                ("throttled", "throttled_minutes"),
            )
        }
        taken = last.take(ends)
        columns = {name: taken[name] for name in taken.column_names}
        return pa.table({**columns, **sums, "p95": p95, "rate": rate, "peak": peak})

    def _rates(self, percents: Sequence[int], weights: Numbers, peak: Numbers) -> list[Numbers]:
        """Return the rates at percentiles: the first bin whose weighted count reaches the rank."""
        bins: Any = self.hours["bins"].combine_chunks()
        offsets = bins.offsets.to_numpy()
        counts = np.diff(offsets)
        values = bins.flatten().to_numpy().astype(np.int64)
        codes = np.where(values == ZERO_BIN, 0, values + _OFFSET)
        run = np.cumsum(np.isin(np.arange(len(counts)), self.begins)) - 1
        upper = (run << (_BIN_BITS + _AGE_BITS)) + _numbers(self.hours, "age")
        packed = np.sort(np.repeat(upper, counts) + (codes << _AGE_BITS))
        reached = np.cumsum(weights[packed & 2**_AGE_BITS - 1])
        ends = np.searchsorted(packed, (np.arange(len(self.begins)) + 1) << (_BIN_BITS + _AGE_BITS))
        totals = reached[ends - 1]
        before = np.append(0, totals[:-1])
        found = []
        for percent in percents:
            rank = before + (percent * (totals - before) + 99) // 100
            at = packed[np.searchsorted(reached, rank)] >> _AGE_BITS & 2**_BIN_BITS - 1
            found.append(np.minimum(_middles(at), peak))
        return found


def _numbers(table: pa.Table, name: str) -> Numbers:
    column: Numbers = table[name].to_numpy()
    return column


def _middles(codes: Numbers) -> Numbers:
    return bin_rates(np.where(codes == 0, ZERO_BIN, codes - _OFFSET))


def bin_rates(bins: Numbers) -> Numbers:
    """Return the rates that stand for bins: Python's own exponential, the same on all machines."""
    rates = [
        0.0 if number == ZERO_BIN else math.exp((number + _HALF) * _LN_RATIO)
        for number in bins.tolist()
    ]
    return np.array(rates, float)
