"""Spark's tasks that look up names: the same function of Arrow tables for all of a task's rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple, Self, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from app.pipeline.errors import UsageError
from app.pipeline.folders import values_of
from app.pipeline.lake import Lake, Partition
from app.pipeline.local_tables import LocalPartitions, local_partitions
from app.pipeline.resolve import series as arrow
from app.pipeline.resolve.levels import NO_LEVEL
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.versions import SHARE
from app.pipeline.tables import DIM_BUCKET, SERIES, SERIES_LIMIT, Table

_DECIDED_DDL: Final = (
    f"{SERIES.ddl}, valid_from timestamp, valid_to timestamp, {arrow.RESOLVED_DDL}"
)
_TAGS: Final = ("bucket_user", "bucket_client")


_ROWS_OF_TASK: Final = 200_000


@dataclass(frozen=True, slots=True)
class LocalHours:
    """Hours in folders of this machine, which tasks read themselves.

    Attributes:
        session: Whose tasks.
        table: Which.
        rows: The folders of the hours.
        shares: Those of each task.
        filled: The hours that have rows.
    """

    session: SparkSession
    table: Table
    rows: LocalPartitions
    shares: Sequence[Sequence[Path]]
    filled: Sequence[Partition]

    @classmethod
    def of(
        cls,
        lakes: Sequence[Lake],
        table: Table,
        hours: Sequence[Partition],
        columns: Sequence[str],
    ) -> Self | None:
        """Divide hours of a table into tasks; null where not all of these reach its folders."""
        session, rows = lakes[0].session, local_partitions(lakes, table, hours, columns)
        if rows is None or lakes[0].folder_of_tasks(table) is None:
            return None
        counts = {folder: rows.rows_of(folder) for folder in rows.folders}
        total = sum(counts.values())
        number = max(-(-total // _ROWS_OF_TASK), session.sparkContext.defaultParallelism)
        shares: dict[int, list[Path]] = {}
        filled, before = [], 0
        for folder, count in counts.items():
            if count:
                shares.setdefault(before * number // total, []).append(folder)
                filled.append(values_of(f"{folder}/", table.partitions))
            before += count
        return cls(session, table, rows, [*shares.values()], filled)

    def map(self, function: Callable[[pa.Table], pa.Table], ddl: str) -> DataFrame:
        """Return what a function makes of the hours of each task."""
        rows, shares = self.rows, self.shares

        def read(numbers: pa.Table) -> pa.Table:
            folders = (folder for number in numbers["id"].to_pylist() for folder in shares[number])
            return function(pa.concat_tables(map(rows.read, folders)))

        numbers = self.session.range(0, len(shares), 1, max(len(shares), 1))
        return _by_task(numbers, read, ddl)


def resolve(callers: DataFrame, look_up: LookUp) -> DataFrame:
    """Add to each caller what limits it, as ``series.resolve`` does."""
    return _by_task(
        callers,
        lambda rows: arrow.resolve(rows, look_up),
        f"{_columns_of(callers)}, {arrow.RESOLVED_DDL}",
    )


def name_entities(buckets: DataFrame, level: str) -> DataFrame:
    """Add to each bucket the entity of a level, as ``series.name_entities`` does."""
    return _by_task(
        buckets,
        lambda rows: arrow.name_entities(rows, level),
        f"{_columns_of(buckets)}, {arrow.ENTITY_DDL}",
    )


def _columns_of(rows: DataFrame) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in rows.dtypes)


def find_limits(series: DataFrame | LocalHours, look_ups: Sequence[LookUp]) -> DataFrame:
    """Return what limits each series in each hour, and the buckets of each hour.

    Args:
        series: The columns of ``SERIES``; a task has all of an hour.
        look_ups: Each of a share of the users.

    Returns:
        The columns of ``FOUND_DDL``, in each task in the order of the tables.
    """
    if len(look_ups) == 1:
        both = _deciding(look_ups[0], arrow.limits_and_buckets)
        if isinstance(series, LocalHours):
            return series.map(both, arrow.FOUND_DDL)
        return _by_task(series, both, arrow.FOUND_DDL)
    if isinstance(series, LocalHours):
        series = series.map(_same, SERIES.ddl)
    shares = (
        _by_task(
            series.where(f"{SHARE.format(len(look_ups))} = {share}"),
            _deciding(look_up),
            _DECIDED_DDL,
        )
        for share, look_up in enumerate(look_ups)
    )
    decided = reduce(DataFrame.unionByName, shares).repartition(*SERIES.partitions)
    return _by_task(decided, arrow.limits_and_buckets, arrow.FOUND_DDL)


def _same(rows: pa.Table) -> pa.Table:
    return rows


def _deciding(
    look_up: LookUp, then: Callable[[pa.Table], pa.Table] = _same
) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: then(arrow.decide(rows, look_up))


def _by_task(rows: DataFrame, function: Callable[[pa.Table], pa.Table], ddl: str) -> DataFrame:
    schema = to_arrow_schema(cast("StructType", StructType.fromDDL(ddl)))

    def all_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if found := [batch for batch in batches if len(batch)]:
            result = function(pa.Table.from_batches(found))
            yield from result.select(schema.names).cast(schema).to_batches()

    return rows.mapInArrow(all_rows, ddl)


def limits_of(found: DataFrame) -> DataFrame:
    """Return the columns of ``SERIES_LIMIT`` and ``key``."""
    return found.where("bucket is null").select(*SERIES_LIMIT.columns, "key")


def buckets_of(found: DataFrame) -> DataFrame:
    """Return the columns of ``DIM_BUCKET``, and ``rows`` as ``FOUND_DDL`` says."""
    rows = found.where("bucket is not null").select("*", "bucket.*")
    return rows.select(*DIM_BUCKET.columns, "rows")


class Decided(NamedTuple):
    """How many rows were decided, and how many of them nothing limits."""

    rows: int
    unlimited: int


def count_decided(buckets: DataFrame) -> Decided:
    """Count what was decided, and make sure that no two buckets have the same id.

    Args:
        buckets: As ``buckets_of`` returns them.

    Raises:
        UsageError: Two have.
    """
    # Another hash, in another order, tells them apart without a comparison of texts.
    other = sf.xxhash64(*reversed(_TAGS), "key", "cluster_id")
    ids = buckets.groupBy("bucket_id").agg(
        sf.min(other).alias("least"),
        sf.max(other).alias("most"),
        sf.sum("rows").alias("rows"),
        sf.sum(sf.when(sf.col("level") == NO_LEVEL, sf.col("rows"))).alias("unlimited"),
    )
    doubled = sf.min(sf.when(sf.col("least") != sf.col("most"), sf.col("bucket_id")))
    rows, unlimited, found = ids.agg(sf.sum("rows"), sf.sum("unlimited"), doubled).collect()[0]
    if found is not None:
        _raise_collision(buckets, found)
    return Decided(rows or 0, unlimited or 0)


def _raise_collision(buckets: DataFrame, bucket_id: int) -> None:
    names = ["cluster_id", "key", *_TAGS]
    both = buckets.where(sf.col("bucket_id") == bucket_id).select(*names).distinct().sort(*names)
    message = (
        f"{' and '.join(str(tuple(row)) for row in both.collect())} have the same bucket_id, a "
        "hash: leave one of them out of the input."
    )
    raise UsageError(message)
