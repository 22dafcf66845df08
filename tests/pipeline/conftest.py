"""One Spark for all tests, and the command as people run it, in the process of the test."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.pipeline.driver_java import written_at_exit
from app.pipeline.spark import spark_session
from tests.testkit.class_archive import archive_of_spark, spark_home
from tests.testkit.hadoop import Hadoop
from tests.testkit.processes import exit_code

SOCKETS_OF_PYSPARK = "ignore:unclosed <socket.+raddr=:ResourceWarning"
"""PySpark 4.1 leaves the socket of each `collect` to Python, which closes it; 4.3 closes it."""

Command = Callable[..., CompletedProcess[str]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests that need Spark to `make faults`, but those of the small run."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(SOCKETS_OF_PYSPARK))
            if "spark" in item.fixturenames and not item.get_closest_marker("small"):
                item.add_marker(pytest.mark.spark)


_ALL_TESTS = 2000
"""A run of fewer loads too few of Spark's classes to write an archive of them."""


@pytest.fixture(scope="session", autouse=True)
def classes_of_spark() -> Iterator[Path]:
    """Let each JVM of Spark take its classes from the archive, where there is one."""
    archive = archive_of_spark()
    options = os.environ["SPARK_SUBMIT_OPTS"]
    if archive.exists():
        options += f" -XX:SharedArchiveFile={archive} -Xlog:disable"
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("SPARK_HOME", str(spark_home()))
        environ.setenv("SPARK_SUBMIT_OPTS", options)
        yield archive


@pytest.fixture(scope="session")
def spark(classes_of_spark: Path, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """One Spark for all tests: it takes seconds to start."""
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        # The second compiler would take longer than what it makes faster.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xmn1g -XX:MetaspaceSize=256m "
        "-XX:TieredStopAtLevel=1",
    }
    missing = not classes_of_spark.exists() and request.session.testscollected > _ALL_TESTS
    with written_at_exit(classes_of_spark) if missing else nullcontext("") as options:
        settings["spark.driver.extraJavaOptions"] += f" {options}"
        with spark_session("tests", master="local[2]", settings=settings) as session:
            yield session


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """HDFS, and YARN with two nodes."""
    with ExitStack() as stack:
        made = Hadoop(tmp_path_factory.mktemp("hadoop"))
        made.start_hdfs(stack)
        made.start_yarn(stack)
        yield made


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
