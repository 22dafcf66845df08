"""Checks of what there is: folders, tables, how many rows, from when to when."""

from collections.abc import Iterator
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from app.pipeline.doctor.environment import Check, fail, ok, warn
from app.pipeline.lake import Lake
from app.pipeline.tables import QUARANTINE, TABLES, Table

COLLECTED: Final = Table(
    "collected",
    """cluster_id string, ts timestamp, broker_id int, metric string, resource string, user string,
    client_id string, value double""",
    (),
    (),
    (),
)
"""What ``collect`` writes, and ``ingest`` reads."""

_TIMES: Final = ("ts", "hour", "start", "valid_from", "taken_at", "last_seen")


def table_checks(lakes: list[Lake]) -> Iterator[Check]:
    """Say how many rows each table has, and from when to when."""
    for lake in lakes:
        found = [table for table in (*TABLES.values(), COLLECTED) if lake.has(table)]
        if not found:
            sentence = f"{lake.name} has no table of these jobs: name the folder above the tables."
            yield fail("tables", sentence)
        for table in found:
            yield _table_check(lake, table)


def _table_check(lake: Lake, table: Table) -> Check:
    frame = lake.read(table)
    time = next((name for name in _TIMES if name in frame.columns), None)
    when = sf.col(time) if time else sf.lit(None).cast("timestamp")
    try:
        found = frame.agg(
            sf.count(sf.lit(1)).alias("rows"),
            sf.min(when).alias("first"),
            sf.max(when).alias("last"),
        )
        [row] = found.toArrow().to_pylist()
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        sentence = f"{lake.address(table)} cannot be read ({reason}): write it again."
        return fail(table.name, sentence)
    if not row["rows"] and table is not QUARANTINE:
        sentence = (
            f"{lake.address(table)} has no rows: look at the report of the job that wrote it."
        )
        return warn(table.name, sentence)
    first, last = row["first"], row["last"]
    period = f", {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC" if first else ""
    return ok(table.name, f"{row['rows']:,} rows{period}.")
