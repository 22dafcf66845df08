"""The Spark session: made in one place, so that every job computes under the same rules."""

import os
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from app.java import JavaMissingError, find_java
from app.pipeline.errors import InfrastructureError
from app.pipeline.interrupts import deferred_interrupts, unlogged_interrupts

LOCAL: Final = "local[*]"

_JAVA: Final = "-XX:+UseParallelGC -XX:MetaspaceSize=256m"
"""Spark loads some 200 MB of classes; a smaller limit collects all garbage whenever it is met."""

_DRIVER: Final = f"{_JAVA} -XX:InitialRAMPercentage=10"
"""A heap that begins small is collected as a whole several times while it grows."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.parquet.block.row.count.limit": "1000000",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.redaction.regex": "(?i)secret|password|token|dsn|url",
    "spark.driver.extraJavaOptions": _DRIVER,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(2**30),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(2**28),
}
"""Joins are broadcast where a job says so; partition columns keep the types of ``tables``.

Row groups of Parquet end after a million rows: bytes alone let one group hold nearly all rows of a
file whose names repeat, and a scan gives each group to one core. What is cached is small and used
at once: compressing it takes longer than it saves.

Python's tasks make and drop arrays of megabytes. The C library would give each back to the system
at once and fault it in anew, page by page, which takes half of their time (``mallopt(3)``); so it
keeps up to 256 MiB for the next one.
"""

TASKS_IN_PYTHON: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": f"{_DRIVER} -XX:TieredStopAtLevel=1"
}
"""For jobs whose rows the JVM never takes apart: to optimize its code takes longer than it runs."""

_MODULE: Final = "--add-modules=jdk.incubator.vector"
_SHUFFLES_PER_CORE: Final = 3


@contextmanager
def spark_session(
    name: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start Spark, and stop it with its JVM at the end of the block.

    Args:
        name: Of the application.
        master: As ``spark-submit --master``.
        settings: Spark settings that win over ours.

    Raises:
        InfrastructureError: There is no Java, or Spark does not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="quota-pipeline-") as directory,
        unlogged_interrupts(),
    ):
        _prepare_environment(Path(directory), master)
        wanted = {**_SETTINGS, **_sized(master, directory), **(settings or {})}
        conf = SparkConf().setAppName(name).setMaster(master).setAll(list(wanted.items()))
        try:
            # A JVM that is on its way when its parent ends would never end.
            with deferred_interrupts():
                SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 - starts the JVM alone
            session = SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:
            message = f"Spark did not start on {master}: {error}"
            raise InfrastructureError(message) from error
        session.sparkContext.setLogLevel("ERROR")
        try:
            if not _is_local(master):
                session.sparkContext.addPyFile(str(_packed(Path(directory))))
            yield session
        finally:
            _stop(session)


def cores(session: SparkSession) -> int:
    """Return how many tasks run at a time."""
    return session.sparkContext.defaultParallelism


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _packed(directory: Path) -> Path:
    """Return this program as a file that workers can import: data sources run there."""
    packed = directory / "app.zip"
    program = Path(__file__).parent.parent
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(program.rglob("*.py")):
            archive.write(file, file.relative_to(program.parent))
    return packed


def _prepare_environment(directory: Path, master: str) -> None:
    """Name the Python and the Java that workers and the driver start."""
    try:
        java = find_java()
    except JavaMissingError as error:
        raise InfrastructureError(str(error)) from error
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(_java_home(java, directory))
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _java_home(java: Path, directory: Path) -> Path:
    """Return a JAVA_HOME whose java drops a module that speeds up linear algebra alone.

    Spark's launcher always asks for it; small runtimes lack it, others warn.
    """
    program = directory / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    program.chmod(0o755)
    return program.parent.parent


def _sized(master: str, directory: str) -> Mapping[str, str]:
    if not _is_local(master):
        return {}
    return {
        "spark.driver.memory": f"{max(1, _memory_gib() // 3)}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(_SHUFFLES_PER_CORE * (os.cpu_count() or 1)),
        "spark.sql.adaptive.enabled": "false",
        "spark.local.dir": directory,
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }


def _memory_gib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30


def _stop(session: SparkSession) -> None:
    """Stop the JVM too: another session of this process may want other settings of it."""
    context = session.sparkContext
    gateway = context._gateway  # noqa: SLF001 - PySpark has no public way to end its JVM
    session.stop()
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait()
    type(context)._gateway = type(context)._jvm = None  # noqa: SLF001
