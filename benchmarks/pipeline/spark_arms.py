"""Two plans of Spark that find the limit of each name in each hour, as ``resolve`` does."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.domain.resolution_levels import PRECEDENCE, Slot, applicable_levels
from app.pipeline.by_partition import Columns, Reading, by_partition
from app.pipeline.commands.resolve import BYTES
from app.pipeline.lake import Lake
from app.pipeline.resolve.look_up import NAMES, LookUp
from app.pipeline.resolve.series import resolve
from app.pipeline.resolve.versions import Versions, read_versions
from app.pipeline.tables import QUOTA_VERSION, SERIES, Table

Answer = Mapping[tuple[int, str], tuple[int, int]]
"""By level and key: how many rows, and the sum of their limits, each at most 10^9."""

CAP = 10**9

_SUMS = "level tinyint, key string, rows bigint, total bigint"


def look_ups(session: SparkSession, data: Path, *, table: Table = SERIES, times: int = 1) -> Answer:
    """Do what ``resolve`` does with each row, the making and checking of its tables included.

    Args:
        session: Whose cores.
        data: Where the tables are.
        table: Whose rows are looked up: names, or observations.
        times: How often they are read, as if there were so many more of them.
    """
    lake = Lake(session, str(data))
    look_up = LookUp.of(Versions.latest(read_versions(lake)))
    reading = Reading([Columns(table, NAMES)], BYTES, table.partitions, together=True)
    hours = lake.partitions(table) * times
    made = by_partition([lake], reading, hours, lambda _, rows: _sums(resolve(rows, look_up)))
    sums = made.rows(_SUMS).collect()
    answer: dict[tuple[int, str], tuple[int, int]] = {}
    for level, key, *found in sums:
        former = answer.get((level, key), (0, 0))
        answer[level, key] = (former[0] + found[0], former[1] + found[1])
    return answer


def _sums(resolved: pa.Table) -> pa.Table:
    """Count the rows of a task, and sum up their limits."""
    capped = pc.floor(pc.min_element_wise(resolved["limit"], float(CAP)))
    groups = resolved.append_column("total", capped.cast(pa.int64())).group_by(["level", "key"])
    sums = groups.aggregate([([], "count_all"), ("total", "sum")])
    columns = (sums["level"], sums["key"], sums["count_all"], sums["total_sum"].fill_null(0))
    return pa.table(columns, ["level", "key", "rows", "total"])


def eight_joins(session: SparkSession, data: Path, *, table: Table = SERIES) -> Answer:
    """Join the quotas of each level on the names themselves, and take the first that is there."""
    slots = {kind: _slot(kind, name) for kind, name in (("user", "user"), ("client", "client_id"))}
    versions = (
        Lake(session, str(data)).read(QUOTA_VERSION).where("valid_to is null and value is not null")
    )
    versions = versions.withColumns({f"{kind}_slot": sf.expr(slot) for kind, slot in slots.items()})
    versions = versions.cache()
    frame = Lake(session, str(data)).read(table).select("cluster_id", "key", "user", "client_id")
    for row in PRECEDENCE:
        named = (("user", row.user), ("client_id", row.client_id))
        on = ["cluster_id", "key", *(name for name, slot in named if slot is Slot.NAMED)]
        of_level = f"user_slot = {int(row.user)} and client_slot = {int(row.client_id)}"
        quotas = versions.where(of_level).select(*on, sf.col("value").alias(f"v{row.level}"))
        frame = frame.join(sf.broadcast(quotas), on, "left")
    frame = frame.withColumn("level", sf.expr(_effective_level()))
    values = (f"when {row.level} then v{row.level}" for row in PRECEDENCE)
    answer = _answer(frame.withColumn("limit", sf.expr(f"case level {' '.join(values)} end")))
    versions.unpersist()
    return answer


def _slot(kind: str, name: str) -> str:
    named = f"when coalesce(`{name}`, '') <> '' then {int(Slot.NAMED)} else {int(Slot.ABSENT)} end"
    return f"case when {kind}_default then {int(Slot.DEFAULT)} {named}"


def _effective_level() -> str:
    """Return the level that limits a caller: the first with a value of those that can."""
    cases = []
    for user, client_id in product(("", "u"), ("", "c")):
        able = applicable_levels(user, client_id)
        levels = [row.level for row in PRECEDENCE if row.level in able]
        first = " ".join(f"when v{level} is not null then {level}" for level in levels)
        chosen = f"case {first} else 0 end" if levels else "0"
        if client_id and not user:
            # The default user's value selects a bucket without a name, where nothing is found.
            chosen = f"if(v6 is not null and v4 is null and v5 is null, 0, {chosen})"
        names = zip(("user", "client_id"), (user, client_id), strict=True)
        has = " and ".join(f"`{column}` {'<>' if name else '='} ''" for column, name in names)
        cases.append(f"when {has} then {chosen}")
    return f"case {' '.join(cases)} end"


def _answer(resolved: DataFrame) -> Answer:
    """Count the rows, and sum up their limits."""
    capped = sf.floor(sf.least(sf.col("limit"), sf.lit(float(CAP)))).cast("bigint")
    groups = resolved.groupBy("level", "key").agg(sf.count(sf.lit(1)), sf.sum(capped))
    return {(level, key): (n, int(total or 0)) for level, key, n, total in groups.collect()}
