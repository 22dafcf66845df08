"""Points of metrics to one row a minute: the work of tasks, and what they tell of it."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.jobs.ingest_tasks import REFUSED, TOLD_DDL, Task
from app.pipeline.sources.points import OUTSIDE


def ingested(points: DataFrame, task: Task) -> DataFrame:
    """Let tasks write ``OBSERVATION_MINUTE``, each the minutes of its points.

    Args:
        points: As ``read_points`` gives them: blobs.
        task: What they need to know.

    Returns:
        The columns of ``TOLD_DDL``. Keep it where it is used twice: each use does the work.
    """
    return points.mapInArrow(task, TOLD_DDL)


def quarantined(told: DataFrame, names: Mapping[int, str]) -> DataFrame:
    """Return what does not count.

    Args:
        told: As ``ingested`` returns it.
        names: What the inputs are called, by their numbers.

    Returns:
        The columns of ``QUARANTINE``. A point that was fine but for another one has its columns
        for its text.
    """
    time = sf.date_format("ts", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
    columns = ("cluster_id", "broker_id", "key", "attribute", "user", "client_id", "value")
    text = sf.to_json(sf.struct(time, *columns))
    refused = told.where((sf.col("kind") == REFUSED) & (sf.col("reason") != OUTSIDE))
    sources = told.sparkSession.createDataFrame(list(names.items()), "file int, source string")
    return (
        refused.join(sf.broadcast(sources), "file")
        .withColumn("raw", sf.coalesce("raw", text))
        .groupBy("source", "line", "raw", "reason")
        .agg(sf.sum("n").alias("n"))
    )
