"""The hours that advice rests on, and what each bucket used in them on each broker."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_type

from app.domain.entities import ClientQuotaEntity
from app.domain.plan_impact import BIN_RATIO, ZERO_BIN
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, read_first, schema_of
from app.pipeline.results import Reach, Scope, broker_coverage, end_of, explain, reach_of
from app.pipeline.tables import BUCKET_HOUR, DIM_BUCKET, Table
from app.pipeline.usage.measures import Numbers, begins_of

MOST_DAYS: Final = 1_000
"""So many days are looked at, at most."""

_HOURS_OF_GROUP: Final = 150_000
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
        return read_first(self.lakes, table, self.hours)

    def reach(self) -> Reach:
        """Return how far the data reach."""
        return reach_of(broker_coverage(self.read(BUCKET_HOUR)))

    def weights(self, halving_days: float | None) -> list[int]:
        """Return the weight of a day by its age in days; all are 1 without a half-life."""
        if halving_days is None:
            return [1] * MOST_DAYS
        return [max(1, round(_WEIGHT * 2 ** (-age / halving_days))) for age in range(MOST_DAYS)]


def tags_of(evidence: Evidence) -> DataFrame:
    """Return ``cluster_id, bucket_id, bucket_user, bucket_client`` of each bucket."""
    buckets = evidence.read(DIM_BUCKET).groupBy("cluster_id", "bucket_id")
    return buckets.agg(
        sf.min("bucket_user").alias("bucket_user"), sf.min("bucket_client").alias("bucket_client")
    )


def quota_columns(entity: ClientQuotaEntity | None) -> dict[str, Any]:
    """Return the columns that name the entity of a quota; those of none are empty."""
    names = {} if entity is None else entity.as_dict()
    columns: dict[str, Any] = {}
    for kind, column in (("user", "quota_user"), ("client-id", "quota_client")):
        name = "quota_user" if kind == "user" else "quota_client_id"
        columns[name] = names.get(kind) or ""
        columns[f"{column}_default"] = kind in names and names[kind] is None
    return columns


def write_advice(
    job: Job, table: Table, rows: Iterable[Mapping[str, Any]], clusters: Sequence[Partition]
) -> int:
    """Replace the advice about clusters, and count it into the report."""
    lake = job.lake()
    written = list(rows)
    frame = frame_of(job.session, table, written).coalesce(1)
    explain(job, table, frame)
    having = {row["cluster_id"] for row in written}
    filled = [item for item in clusters if item["cluster_id"] in having]
    count = lake.write(frame, table, clusters, filled=filled)
    job.counts.setdefault("rows_out", {})[table.name] = count
    return count


def frame_of(session: SparkSession, table: Table, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return rows as a table has them; what is missing is null."""
    if not rows:
        # Arrow has no batch that would tell Spark the columns.
        return session.createDataFrame([], schema_of(table))
    columns = {
        each.name: pa.array([row.get(each.name) for row in rows], to_arrow_type(each.dataType))
        for each in schema_of(table)
    }
    return session.createDataFrame(pa.table(columns))


USE_DDL: Final = """cluster_id string, key string, bucket_id bigint, broker_id int, level tinyint,
    limit double, minutes bigint, expected bigint, throttled bigint, p95 double, rate double,
    peak double"""
"""What a bucket used on a broker: ``expected`` are the minutes that the broker reported in the
hours of the bucket, ``level`` and ``limit`` those of the last one. Rates are the middle of their
bins."""

_READ: Final = (
    *("cluster_id", "dt", "hour", "broker_id", "key", "bucket_id", "level", "limit", "minutes"),
    *("rate_max", "throttled_minutes", "bins"),
)


def grouped_hours(evidence: Evidence) -> Any:
    """Return the hours of buckets in groups: each has all hours of its buckets.

    The columns are those of ``_READ``, ``age`` (days before the cluster's newest) and ``reported``
    (minutes in which the broker reported anything in that hour).
    """
    hours = evidence.read(BUCKET_HOUR)
    of_broker = hours.groupBy("cluster_id", "dt", "hour", "broker_id").agg(
        sf.bit_count(sf.bit_or("present")).cast("bigint").alias("reported"),
        sf.count(sf.lit(1)).alias("hours"),
    )
    counted = of_broker.persist()
    number = counted.agg(sf.sum("hours")).collect()[0][0] or 0
    shares = -(-number // _HOURS_OF_GROUP) or 1
    newest = sf.create_map(*(sf.lit(value) for item in evidence.newest.items() for value in item))
    rows = hours.select(*_READ).join(
        sf.broadcast(counted.drop("hours")), ["cluster_id", "dt", "hour", "broker_id"]
    )
    return rows.withColumns(
        {
            "age": sf.datediff(newest[sf.col("cluster_id")], sf.col("dt")),
            "share": sf.expr(f"pmod(bucket_id, {shares})"),
        }
    ).groupBy("cluster_id", "share")


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
        names = sorted(set(hours["key"].to_pylist()))
        key = np.searchsorted(np.array(names), np.array(hours["key"].to_pylist()))
        columns = [_numbers(hours, name) for name in ("hour", "age", "broker_id", "bucket_id")]
        columns[1] = -columns[1]
        order = np.lexsort([*columns, key])
        ordered = hours.take(order).combine_chunks()
        begins = begins_of(
            key[order], _numbers(ordered, "bucket_id"), _numbers(ordered, "broker_id")
        )
        return cls(ordered, begins, key[order])

    def table(self, percent: int, weights: Sequence[int]) -> pa.Table:
        """Return the columns of ``USE_DDL``."""
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
