"""Ids of series and partitions of rows, as Spark computes them."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.pipeline.lake import Partition, in_order
from app.pipeline.tables import SERIES


def series_id(grain: str) -> Column:
    """Return the hash of cluster, key, names and grain; each text is hashed once."""
    names = "xxhash64(cluster_id, key), xxhash64(user), xxhash64(client_id)"
    return sf.expr(f"xxhash64({names}, xxhash64('{grain}'))")


def partition_values(rows: DataFrame) -> list[Partition]:
    """Return few rows of cluster_id, dt and hour as partitions."""
    texts = rows.select(*(sf.col(name).cast("string") for name in SERIES.partitions))
    return in_order(row.asDict() for row in texts.collect())
