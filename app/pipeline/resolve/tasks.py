"""Spark's tasks that look up names: the same functions of columns for all rows of a task."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from app.pipeline.by_partition import Columns, Reading, Share, by_partition, of_all_rows
from app.pipeline.errors import UsageError
from app.pipeline.hashes import hash_texts
from app.pipeline.lake import Lake, arrow_schema
from app.pipeline.partitions import Partition
from app.pipeline.resolve import series as arrow
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.tables import BY_HOUR, SERIES
from app.pipeline.task_tables import TaskTables

BYTES: Final = 10_000_000
"""Files of series with so many bytes have about 400,000 rows."""

_READING: Final = Reading(
    [Columns(SERIES, (*arrow.OF_SERIES, "user", "client_id"))], BYTES, together=True
)
_TAGS: Final = ("cluster_id", "key", "bucket_user", "bucket_client")


def find_limits(
    lakes: Sequence[Lake], hours: Sequence[Partition], look_ups: Sequence[LookUp], made: TaskTables
) -> DataFrame:
    """Return what tasks make of the series of hours, by the packing of ``made``.

    Each look-up is of a share of the users. ``made`` takes ``SERIES_LIMIT`` and ``DIM_BUCKET``, and
    what ``REPORTS`` says.
    """
    packing = made.packing

    def pack(decided: pa.Table) -> pa.Table:
        tables = arrow.limits_and_buckets(decided).items() if len(decided) else ()
        return pa.Table.from_batches(packing.pack(tables), packing.schema)

    if len(look_ups) > 1:
        return by_task(decide(lakes, hours, look_ups).repartition(*BY_HOUR), pack, made.ddl)
    (look_up,) = look_ups
    found = by_partition(
        lakes, _READING, hours, lambda _, series: pack(arrow.decide(series, look_up))
    )
    return found.rows(made.ddl)


def decide(
    lakes: Sequence[Lake], hours: Sequence[Partition], look_ups: Sequence[LookUp]
) -> DataFrame:
    """Return what is decided of the series of hours, in the columns of ``DECIDED_DDL``."""
    number = len(look_ups)
    schema = arrow_schema(arrow.DECIDED_DDL)

    def deciding(share: int, look_up: LookUp) -> Callable[[Share, pa.Table], pa.Table]:
        def make(_: Share, series: pa.Table) -> pa.Table:
            own = hash_texts(series["user"].combine_chunks()) % number == share
            return arrow.decide(series.filter(pa.array(own)), look_up).cast(schema)

        return make

    shares = (
        by_partition(lakes, _READING, hours, deciding(*each)).rows(arrow.DECIDED_DDL)
        for each in enumerate(look_ups)
    )
    return reduce(DataFrame.unionByName, shares)


def require_own_ids(ids: pa.Table, decided: Callable[[], DataFrame]) -> None:
    """Make sure that no two buckets have the same id.

    ``ids`` are as ``REPORTS`` says, of all tasks; ``decided`` calls ``decide``, to name the two.

    Raises:
        UsageError: Two have.
    """
    doubled = arrow.doubled_id(ids)
    if doubled is None:
        return
    both = decided().where(f"bucket_id = {doubled}").select(*_TAGS).distinct().sort(*_TAGS)
    message = (
        f"{' and '.join(str(tuple(row)) for row in both.collect())} have the same bucket_id, a "
        "hash: leave one of them out of the input."
    )
    raise UsageError(message)


def resolve(callers: DataFrame, look_up: LookUp) -> DataFrame:
    """Add to each caller what limits it, as ``series.resolve`` does."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in callers.dtypes)
    ddl = f"{columns}, {arrow.RESOLVED_DDL}"
    return by_task(callers, lambda rows: arrow.resolve(rows, look_up), ddl)


def by_task(rows: DataFrame, function: Callable[[pa.Table], pa.Table], ddl: str) -> DataFrame:
    """Return what a function makes of all rows of each task."""
    schema = arrow_schema(ddl)
    task = of_all_rows(lambda found: function(found).select(schema.names).cast(schema))
    return rows.mapInArrow(task, ddl)
