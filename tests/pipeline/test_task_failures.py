"""A failure of Spark or of a file is reported in a sentence, whatever it is."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError, PipelineError, UsageError
from app.pipeline.main import main
from app.pipeline.spark import spark_failures
from app.pipeline.tables import RATE_MINUTE, UTILIZATION_DAILY
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import facts_of_minutes, minute, publish
from tests.testkit.outages import small_disk

Batches = Iterable[pa.RecordBatch]


def raising(error: Exception) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def task(_batches: Batches) -> Iterator[pa.RecordBatch]:
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
@pytest.mark.small
def test_an_error_of_a_task_is_reported(
    spark: SparkSession, error: Exception, exit_code: int, sentence: str
):
    frame = spark.range(1).mapInArrow(raising(error), "n int")
    with pytest.raises(PipelineError) as raised, spark_failures():
        frame.collect()
    assert (raised.value.exit_code, str(raised.value)) == (exit_code, sentence)


def test_an_error_of_spark_itself_is_reported(spark: SparkSession, tmp_path: Path):
    with (
        pytest.raises(InfrastructureError, match=r"^Spark failed: \[.*no such column"),
        spark_failures(),
    ):
        spark.sql("select raise_error('no such column')").collect()
    file = tmp_path / "broken.parquet"
    file.write_bytes(b"PAR1 and nothing more PAR1")
    with pytest.raises(InfrastructureError, match=rf"^Spark failed: \[.*{file}"), spark_failures():
        spark.read.schema("n int").parquet(str(file)).count()


def fail_of(text: str) -> None:
    with spark_failures():
        raise PySparkException(text)


def test_of_an_error_of_java_its_sentences_are_repeated_without_the_stack():
    stack = "\n\tat a.b(C.java:1)\n"
    text = f"An error occurred while calling o1.x.\n: a.b.SomeException: Cannot call it.{stack}"
    with pytest.raises(InfrastructureError, match=r"^Spark failed: Cannot call it\.$"):
        fail_of(text)
    with pytest.raises(InfrastructureError, match=r"^Spark failed: Cannot call it\.: No disk$"):
        fail_of(f"{text}Caused by: java.io.IOException: No disk{stack}")


def broken(folder: Path, *, footer: bool) -> Path:
    """Publish a minute, and spoil the pages or cut off the footer of its file."""
    publish(folder, facts_of_minutes([minute(0)]))
    (file,) = (folder / RATE_MINUTE.name).rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:50] if footer else content[:4] + b"\xff" * 60 + content[64:])
    return file


@pytest.mark.parametrize("footer", [True, False])
@pytest.mark.small
def test_a_command_names_the_file(spark_command: Command, footer: bool, tmp_path: Path):
    file = broken(tmp_path, footer=footer)
    ended = spark_command("utilization", "--input", tmp_path, "--out", tmp_path / "out")
    assert ended.returncode == 5
    assert file.name in ended.stderr.splitlines()[-1]
    assert not (tmp_path / "out" / UTILIZATION_DAILY.name).exists()


@pytest.mark.spark
def test_a_command_says_that_the_disk_is_full(tmp_path: Path):
    """It has a JVM of its own: that of all tests would keep the broken file open."""
    publish(tmp_path / "in", facts_of_minutes([minute(0)]))
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-m", "app.pipeline.main", "utilization", "--master", "local[1]"]
    with small_disk(tmp_path / "out", 1):
        with suppress(OSError), (tmp_path / "out" / "large").open("wb", buffering=0) as large:
            while large.write(bytes(4096)):
                pass
        ended = subprocess.run(
            [*command, "--input", tmp_path / "in", "--out", tmp_path / "out"],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 5, ended.stderr
    assert ended.stderr.splitlines()[-1].endswith(": No space left on device")


def test_a_command_without_spark_fails_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / UTILIZATION_DAILY.name / "cluster_id=a" / "dt=2026-11-21").mkdir(parents=True)
    next(tmp_path.rglob("dt=*")).joinpath("a.parquet").write_bytes(b"PAR1")
    command = ["plot", "--input", str(tmp_path), "--out", str(tmp_path / "pictures")]
    assert main(command) == 5
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("quota-pipeline plot: ")
    assert "a.parquet" in last
