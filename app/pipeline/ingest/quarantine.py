"""Input that could not be used, as ``quarantine`` has it."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.ingest.minutes import HOUR_US
from app.pipeline.lake import Partition, is_within
from app.pipeline.tables import QUARANTINE


def quarantine(refused: DataFrame, names: dict[int, str], hours: Sequence[Partition]) -> DataFrame:
    """Return the columns of ``QUARANTINE``.

    Args:
        refused: The columns of ``surplus``, as ``run_tasks`` returns them.
        names: What the inputs are called, by their numbers.
        hours: That the run is about; the first has what is of none of them.
    """
    sources = refused.sparkSession.createDataFrame(list(names.items()), "file int, source string")
    number = sf.expr(f"cast(ts div {HOUR_US} as int)")
    of_hour = {"dt": "date_from_unix_date(hour_number div 24)", "hour": "hour_number % 24"}
    own = refused.withColumn("hour_number", number).withColumns(
        {name: sf.expr(item) for name, item in of_hour.items()}
    )
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
