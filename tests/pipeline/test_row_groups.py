"""Parquet of many rows can be read by several cores."""

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession


def test_a_row_group_ends_after_a_million_rows(spark: SparkSession, tmp_path: Path):
    rows = spark.range(0, 2_100_000, 1, 1).selectExpr("'the same name' as name")
    rows.write.parquet(str(tmp_path / "rows"))
    (file,) = (tmp_path / "rows").glob("part-*.parquet")
    footer = pq.read_metadata(file)
    sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert sizes == [1_000_000, 1_000_000, 100_000]
