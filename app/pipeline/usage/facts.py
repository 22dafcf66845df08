"""The facts of a run: minutes of series, and what was decided for each series and hour."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.errors import UsageError
from app.pipeline.lake import Lake, Partition, read_first
from app.pipeline.results import Scope
from app.pipeline.tables import BY_HOUR, RATE_MINUTE, SERIES, SERIES_LIMIT


@dataclass(frozen=True, slots=True)
class Facts:
    """What minutes of buckets follow from: ``RATE_MINUTE``, ``SERIES`` and ``SERIES_LIMIT``.

    Attributes:
        lakes: Where they are; of those that overlap the first counts.
        hours: That the run is about, in order.
    """

    lakes: Sequence[Lake]
    hours: Sequence[Partition]

    def rates(self) -> DataFrame:
        """Return the minutes of series."""
        return read_first(self.lakes, RATE_MINUTE, self.hours)

    def decided(self) -> DataFrame:
        """Return the columns of ``SERIES`` and ``SERIES_LIMIT``."""
        limits = read_first(self.lakes, SERIES_LIMIT, self.hours, SERIES.order)
        return read_first(self.lakes, SERIES, self.hours).join(limits, [*BY_HOUR, "series_id"])

    def most_rows(self) -> int:
        """Return about how many minutes the largest hour has."""
        counts = self.rates().groupBy(*BY_HOUR).count()
        return counts.agg(sf.max("count")).collect()[0][0] or 0


def read_facts(lakes: Sequence[Lake], scope: Scope) -> Facts:
    """Find the facts of a cluster and period.

    Raises:
        UsageError: No input has one of the tables.
    """
    for table in (RATE_MINUTE, SERIES, SERIES_LIMIT):
        if not any(lake.has(table) for lake in lakes):
            message = (
                f"There is no table {table.name} in {', '.join(lake.name for lake in lakes)}: name "
                "the folder that `ingest` and `resolve` wrote with --out."
            )
            raise UsageError(message)
    return Facts(lakes, scope.hours([lake for lake in lakes if lake.has(RATE_MINUTE)], RATE_MINUTE))
