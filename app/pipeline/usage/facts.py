"""The facts of a run: minutes of series, and what was decided for each series and hour."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from app.pipeline.errors import UsageError
from app.pipeline.lake import Lake, Partition, read_first
from app.pipeline.results import Scope
from app.pipeline.tables import BY_HOUR, RATE_MINUTE, SERIES, SERIES_LIMIT, Table


@dataclass(frozen=True, slots=True)
class Facts:
    """What minutes of buckets follow from.

    Attributes:
        rates: The columns of ``RATE_MINUTE``.
        decided: Those of ``SERIES`` and ``SERIES_LIMIT``, of the same hours.
        hours: That the run is about, in order.
        filled: Those of them that have rows.
        rows_of_hour: About how many minutes the largest of them has.
    """

    rates: DataFrame
    decided: DataFrame
    hours: Sequence[Partition]
    filled: Sequence[Partition]
    rows_of_hour: int


def read_facts(lakes: Sequence[Lake], scope: Scope) -> Facts:
    """Read the facts of a cluster and period; of inputs that overlap the first counts.

    Raises:
        UsageError: No input has one of the tables.
    """
    found = {table: _having(lakes, table) for table in (RATE_MINUTE, SERIES, SERIES_LIMIT)}
    hours = scope.hours(found[RATE_MINUTE], RATE_MINUTE)
    rates = read_first(found[RATE_MINUTE], RATE_MINUTE, hours)
    names = read_first(found[SERIES], SERIES, hours)
    limits = read_first(found[SERIES_LIMIT], SERIES_LIMIT, hours, SERIES.order)
    counts = rates.groupBy(*BY_HOUR).count().collect()
    has_rows = {(row.cluster_id, f"{row.dt}", f"{row.hour}") for row in counts}
    filled = [hour for hour in hours if tuple(hour.values()) in has_rows]
    most = max((row["count"] for row in counts), default=0)
    decided = names.join(limits, [*BY_HOUR, "series_id"])
    return Facts(rates, decided, hours, filled, most)


def _having(lakes: Sequence[Lake], table: Table) -> list[Lake]:
    having = [lake for lake in lakes if lake.has(table)]
    if not having:
        message = (
            f"There is no table {table.name} in {', '.join(lake.name for lake in lakes)}: name the "
            "folder that `ingest` and `resolve` wrote with --out."
        )
        raise UsageError(message)
    return having
