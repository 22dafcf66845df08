"""What Spark failed of is told in a sentence, whatever it was."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError, PipelineError, UsageError
from app.pipeline.exchange import Task, for_each
from app.pipeline.task_failures import failures_told


def raising(error: Exception) -> Task:
    def task(_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise error

    return task


@pytest.mark.parametrize(
    ("error", "exit_code", "sentence"),
    [
        (UsageError("Name another topic."), 2, "Name another topic."),
        (InfrastructureError("No message came."), 5, "No message came."),
        (OverflowError("date value\nout of range"), 5, "A task failed: OverflowError: date value"),
        (AssertionError(), 5, "A task failed: AssertionError"),
    ],
    ids=str,
)
def test_what_a_task_raised_is_told(
    spark: SparkSession, error: Exception, exit_code: int, sentence: str
):
    frame = for_each(spark, 1, raising(error), "n int")
    with pytest.raises(PipelineError) as told, failures_told():
        frame.collect()
    assert (told.value.exit_code, str(told.value)) == (exit_code, sentence)


def test_what_spark_itself_says_is_told(spark: SparkSession, tmp_path: Path):
    with (
        pytest.raises(InfrastructureError, match=r"^Spark failed: \[.*no such column"),
        failures_told(),
    ):
        spark.sql("select raise_error('no such column')").collect()
    file = tmp_path / "broken.parquet"
    file.write_bytes(b"PAR1 and nothing more PAR1")
    with pytest.raises(InfrastructureError, match=rf"^Spark failed: \[.*{file}"), failures_told():
        spark.read.schema("n int").parquet(str(file)).count()
