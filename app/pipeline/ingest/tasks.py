"""The tasks of an ingest: each judges and sums up the points of its hours, all in one reading."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.ingest.checks import Tally
from app.pipeline.ingest.files_at_hand import read_share, shares_of
from app.pipeline.ingest.hours import Task
from app.pipeline.ingest.inputs import Inputs
from app.pipeline.ingest.minutes import ATTRIBUTES, HOUR_US, Provenance
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.read import read_points, unreadable_points
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition, is_within
from app.pipeline.tables import QUARANTINE, RATE_MINUTE, SERIES
from app.pipeline.task_tables import TaskTables

_REPORTS: Final = {
    "counted": "kind string, name string, n bigint",
    "reported": "cluster_id string, broker_id int, hour_number int, rows bigint, "
    "with_rate bigint, ups bigint, minutes bigint, first bigint, last bigint",
}
SURPLUS: Final = "surplus"
"""Rows that do not count."""

_DETAILS: Final = {
    SURPLUS: "cluster_id string, ts bigint, file int, line bigint, raw string, reason string"
}


class Outcome(NamedTuple):
    """What the tasks counted, and ``SERIES`` and ``RATE_MINUTE``, with ``SURPLUS`` beside."""

    counted: Tally
    made: TaskTables


def run_tasks(
    inputs: Inputs, rules: Rules, provenance: Provenance, out: Lake, opened: ExitStack
) -> Outcome:
    """Judge and sum up all points of the inputs.

    Raises:
        UsageError: Two series have the same id.
        InfrastructureError: A file cannot be read.
    """
    session = out.session
    made = TaskTables(out, (SERIES, RATE_MINUTE), _REPORTS, opened, _DETAILS)
    task = Task(inputs.firsts, provenance, made.packing)
    shares = shares_of(session, inputs, rules)
    if shares is None:
        points = read_points(session, inputs, rules)
        by_hour = points.repartition(sf.expr(f"ts div {HOUR_US}"))
        found = by_hour.mapInArrow(task.sum_points, made.ddl)
    else:
        numbers = session.range(0, len(shares), 1, max(len(shares), 1))
        read = partial(read_share, rules=rules, ignores_broken=inputs.ignores_broken)
        found = numbers.mapInArrow(partial(task.sum_shares, shares=shares, read=read), made.ddl)
        if inputs.unreadable:
            unread = unreadable_points(session, inputs).coalesce(1)
            found = found.unionByName(unread.mapInArrow(task.sum_points, made.ddl))
    made.run(found)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, name, n in zip(*made.reports["counted"].to_pydict().values(), strict=True):
        counts[kind][name] += n
    counted = Tally.of(made.reports["reported"].to_pylist())
    counted.refused = dict(sorted(counts["refused"].items()))
    counted.left_out = counts["left_out"].total()
    counted.used = {name: counts["used"][name] for name in ATTRIBUTES if counts["used"][name]}
    counted.failed = counts["failed"][""]
    counted.named = sorted(counts["cluster"])
    return Outcome(counted, made)


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
