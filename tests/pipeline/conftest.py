"""One Spark for all tests, and the command as people run it, in the process of the test."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from app.java import find_java
from app.localdev.kafka_jvm import ArchiveRecording, archive_options
from app.pipeline.spark import spark_session
from tests.testkit.processes import exit_code
from tests.testkit.sizes import size

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Without its code generator Spark plans alike and saves a third of the processor's time: tables
of ten rows are read before the code for them is compiled. The long run generates code."""

JAVA = str(find_java())
JARS = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))

os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
    [os.environ["SPARK_SUBMIT_OPTS"], *archive_options(JAVA, JARS)]
)

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests: it takes seconds to start.

    Where there is no archive of its classes yet, its end writes the archive, which halves those
    seconds for every JVM of the next run.
    """
    recording = ArchiveRecording(JAVA, JARS)
    java = ["-XX:+UseSerialGC -Xmn1g -XX:MetaspaceSize=256m", *recording.options()]
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    with spark_session(
        "tests", master="local[2]", settings=settings | size(INTERPRETED, {})
    ) as session:
        yield session
    recording.finish(complete=True)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Run ``quota-pipeline``: return its exit code and what it printed."""
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        capfd.readouterr()
        code: Any = exit_code(list(map(str, arguments)))
        return CompletedProcess(arguments, code, *capfd.readouterr())

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def spark_command(
    command: Command, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run ``quota-pipeline`` with the Spark of all tests instead of one of its own."""

    @contextmanager
    def session_of_tests(_name: str, **_options: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("app.pipeline.job.spark_session", session_of_tests)
    return command
