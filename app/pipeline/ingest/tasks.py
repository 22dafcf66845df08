"""The tasks of an ingest: each judges and sums up the points of its hours, all in one reading."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple, cast

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from app.pipeline.folder_writer import WRITTEN, Staging
from app.pipeline.ingest.checks import Tally
from app.pipeline.ingest.files_at_hand import read_share, shares_of
from app.pipeline.ingest.hours import Task
from app.pipeline.ingest.inputs import Inputs
from app.pipeline.ingest.minutes import ATTRIBUTES, HOUR_US, Provenance
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.read import read_points, unreadable_points
from app.pipeline.lake import Lake, schema_of
from app.pipeline.partitions import Partition, is_within
from app.pipeline.tables import QUARANTINE, RATE_MINUTE, SERIES

TABLES: Final = (SERIES, RATE_MINUTE)

_SURPLUS: Final = "cluster_id string, ts bigint, file int, line bigint, raw string, reason string"
_STRUCTS: Final = {
    "counted": "kind string, name string, n bigint",
    "reported": "cluster_id string, broker_id int, hour_number int, rows bigint, "
    "with_rate bigint, ups bigint, minutes bigint, first bigint, last bigint",
    "surplus": _SURPLUS,
    "written": f"name string, {WRITTEN}",
    **{table.name: table.ddl for table in TABLES},
}
_DDL: Final = ", ".join(f"{name} struct<{ddl}>" for name, ddl in _STRUCTS.items())
_DETAILS: Final = ("surplus", *(table.name for table in TABLES))


class Outcome(NamedTuple):
    """What the tasks did.

    Attributes:
        found: What they return, persisted: structs of which each row has one.
        staged: Where the tasks wrote their files, by the names of tables; empty where ``found`` has
            the rows.
        written: The rows of each partition that is staged, by the names of tables.
    """

    counted: Tally
    found: DataFrame
    staged: Mapping[str, Staging]
    written: Mapping[str, Mapping[str, int]]

    def rows(self, name: str) -> DataFrame:
        """Return the rows of a table, or ``surplus``."""
        return self.found.where(f"`{name}` is not null").select(f"`{name}`.*")


def run_tasks(
    inputs: Inputs, rules: Rules, provenance: Provenance, out: Lake, opened: ExitStack
) -> Outcome:
    """Judge and sum up all points of the inputs, and write what is staged.

    Raises:
        UsageError: Two series have the same id.
        InfrastructureError: A file cannot be read.
    """
    session = out.session
    staged = {
        table.name: opened.enter_context(Staging(folder, schema_of(table), table))
        for table in TABLES
        if (folder := out.folder_of_tasks(table))
    }
    schema = to_arrow_schema(cast("StructType", StructType.fromDDL(_DDL)))
    writers = {name: each.write for name, each in staged.items()}
    task = Task(inputs.firsts, provenance, writers, schema)
    shares = shares_of(session, inputs, rules)
    if shares is None:
        points = read_points(session, inputs, rules)
        by_hour = points.repartition(sf.expr(f"ts div {HOUR_US}"))
        found = by_hour.mapInArrow(task.sum_points, _DDL)
    else:
        numbers = session.range(0, len(shares), 1, max(len(shares), 1))
        read = partial(read_share, rules=rules, ignores_broken=inputs.ignores_broken)
        found = numbers.mapInArrow(partial(task.sum_shares, shares=shares, read=read), _DDL)
        if inputs.unreadable:
            unread = unreadable_points(session, inputs).coalesce(1)
            found = found.unionByName(unread.mapInArrow(task.sum_points, _DDL))
    found = found.persist(StorageLevel.DISK_ONLY)
    opened.callback(found.unpersist)
    nothing = " and ".join(f"`{name}` is null" for name in _DETAILS)
    return _outcome(found, found.where(nothing).collect(), staged)


def _outcome(found: DataFrame, rows: Sequence[Row], staged: Mapping[str, Staging]) -> Outcome:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    written: dict[str, Counter[str]] = {name: Counter() for name in staged}
    for row in rows:
        if row.written is not None:
            written[row.written.name][row.written.folder] += row.written.rows
        elif row.counted is not None:
            counts[row.counted.kind][row.counted.name] += row.counted.n
    counted = Tally.of([row.reported for row in rows if row.reported is not None])
    counted.refused = dict(sorted(counts["refused"].items()))
    counted.left_out = counts["left_out"].total()
    counted.used = {name: counts["used"][name] for name in ATTRIBUTES if counts["used"][name]}
    counted.failed = counts["failed"][""]
    counted.named = sorted(counts["cluster"])
    return Outcome(counted, found, staged, written)


def quarantine(refused: DataFrame, names: dict[int, str], hours: Sequence[Partition]) -> DataFrame:
    """Return the columns of ``QUARANTINE``; what is of none of the hours is with the first."""
    sources = refused.sparkSession.createDataFrame(list(names.items()), "file int, source string")
    own = refused.selectExpr("*", f"cast(ts div {HOUR_US} as int) as number")
    own = own.selectExpr("*", "date_from_unix_date(number div 24) as dt", "number % 24 as hour")
    is_own = sf.coalesce(is_within(hours, QUARANTINE.partitions), sf.lit(False))
    at_home = {"cluster_id": "string", "dt": "date", "hour": "int"}
    home = hours[0]
    placed = own.withColumn("is_own", is_own).withColumns(
        {
            name: sf.when(sf.col("is_own"), sf.col(name)).otherwise(sf.lit(home[name]).cast(kind))
            for name, kind in at_home.items()
        }
    )
    return (
        placed.join(sf.broadcast(sources), "file")
        .groupBy(*QUARANTINE.partitions, "source", "line", "raw", "reason")
        .agg(sf.count(sf.lit(1)).alias("n"))
    )
