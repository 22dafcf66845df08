"""The chain from ingest to incidents on a few points, by the command, as people run it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import Row, SparkSession

from app.domain.quota_keys import QuotaKey
from app.localdev.processes import HOST, launched
from app.pipeline.lake import Lake
from app.pipeline.tables import (
    BUCKET_HOUR,
    QUOTA_VERSION,
    RATE_MINUTE,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    Table,
)
from tests.pipeline.ingest.points import Point, write_adapter
from tests.pipeline.resolve.clusters import Version, quota_table
from tests.testkit.hadoop import Hadoop

COMMAND = str(Path(sys.executable).with_name("quota-pipeline"))
POINTS = [Point(n, n % 3, user=f"user {n % 7}", client_id='a"b', value=n / 7) for n in range(600)]
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "4",
}
"""Of a cluster on this machine."""

RESULTS = (RATE_MINUTE, BUCKET_HOUR, UTILIZATION_DAILY, THROTTLE_INCIDENT)


class Jobs:
    """Runs jobs of the command.

    Args:
        driver: For the driver's own files.
        options: Of each job.
        environ: Of each job, beside what is set.
    """

    def __init__(
        self, driver: Path, *options: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self._folder = driver
        self._options = options
        self._environ = {"TMPDIR": str(driver), "SPARK_LOCAL_IP": HOST, **(environ or {})}

    def __call__(self, name: str, *options: str) -> dict[str, Any]:
        done = subprocess.run(
            launched([COMMAND, name, "--json", "--cluster", "c", *options, *self._options]),
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            env={**os.environ, **self._environ},
        )
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def settings(chosen: Mapping[str, str]) -> list[str]:
    """Return settings of Spark as options of a job."""
    return [argument for item in chosen.items() for argument in ("--conf", "=".join(item))]


def on_yarn(hadoop: Hadoop, driver: Path, chosen: Mapping[str, str], *options: str) -> Jobs:
    """Return jobs on two nodes of YARN, with these settings of Spark and options."""
    jars = Path(pyspark.__file__).parent / "jars"
    nodes = {"spark.executor.instances": "2", "spark.yarn.jars": f"local:{jars}/*"}
    environ = {"HADOOP_CONF_DIR": str(hadoop.conf)}
    return Jobs(driver, "--master", "yarn", *options, *settings(nodes | chosen), environ=environ)


def write_inputs(
    spark: SparkSession, folder: Path, quotas: str, points: Sequence[Point] = POINTS
) -> Path:
    """Write a quota below a URI, and points to a file; return the file."""
    limit = Version("c", (("user", "user 1"),), QuotaKey.PRODUCER_BYTE_RATE, 40.0, 0, None)
    Lake(spark, quotas).write(spark.createDataFrame(quota_table([limit])), QUOTA_VERSION)
    return write_adapter(points, folder)


def rows_of(spark: SparkSession, out: str, table: Table) -> list[Row]:
    return sorted(Lake(spark, out).read(table).collect(), key=str)


def assert_same_results(
    spark: SparkSession, first: str, second: str, tables: Sequence[Table] = RESULTS
) -> None:
    """Compare the tables below two URIs row by row."""
    for table in tables:
        rows = rows_of(spark, second, table)
        assert rows == rows_of(spark, first, table) != [], table.name
