"""Partitions in folders of this machine, read one by one."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError
from app.pipeline.lake import Lake
from app.pipeline.local_tables import local_partitions
from app.pipeline.tables import RATE_MINUTE

NAMES = ("cluster_id", "series_id", "hour", "rate_avg", "throttle_ms_max")


def test_partitions_are_read_in_the_order_asked_for_with_null_for_what_files_lack(
    spark: SparkSession, tmp_path: Path
):
    hours = [{"cluster_id": "c 1", "dt": "2026-11-01", "hour": hour} for hour in ("2", "10", "11")]
    for hour in hours[:2]:
        folder = tmp_path / "rate_minute/cluster_id=c%201/dt=2026-11-01" / f"hour={hour['hour']}"
        folder.mkdir(parents=True)
        # A file of the past has no throttling, and one of Spark's own names is no file of rows.
        rows = pa.table({"series_id": [int(hour["hour"])], "rate_avg": pa.array([1], pa.int32())})
        pq.write_table(rows, folder / "part-1.parquet")
        pq.write_table(rows, folder / "_part-2.parquet")
    found = local_partitions([Lake(spark, f"{tmp_path}")], RATE_MINUTE, hours, NAMES)
    assert found is not None
    assert len(found.read_all()) == 2
    assert found.size() == sum(
        file.stat().st_size for folder in found.folders for file in folder.glob("part*")
    )
    read = [found.read(folder).to_pylist() for folder in found.folders]
    assert [[*row.values()] for (row,) in read] == [
        ["c 1", number, number, 1.0, None] for number in (2, 10)
    ]


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" + bytes(200)], ids=["short", "footer"])
def test_a_broken_file_is_named(spark: SparkSession, tmp_path: Path, content: bytes):
    hour = {"cluster_id": "c", "dt": "2026-11-01", "hour": "2"}
    file = tmp_path / "rate_minute/cluster_id=c/dt=2026-11-01/hour=2/a.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    lakes = [Lake(spark, f"{tmp_path}")]
    found = local_partitions(lakes, RATE_MINUTE, [hour], NAMES)
    assert found is not None
    with pytest.raises(InfrastructureError, match=f"^{file} cannot be read: "):
        found.read(*found.folders)
    with pytest.raises(InfrastructureError, match=f"^{file} cannot be read: "):
        found.read_all()
