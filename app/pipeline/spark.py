"""The Spark session: made here alone, so that every job computes under the same rules."""

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from app.pipeline import errors
from app.pipeline.driver_java import (
    DRIVER_OPTIONS,
    EXECUTOR_OPTIONS,
    archive_of_runs,
    heap_gib,
    name_programs,
    options_of_archive,
)
from app.pipeline.errors import InfrastructureError, PipelineError, UsageError
from app.pipeline.options import LOCAL


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM wait until the block ends; the second does not wait.

    Only the main thread gets signals; a signal that is ignored stays so.
    """
    arrived: list[int] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}

    def defer(number: int, frame: FrameType | None) -> None:
        if arrived:
            handlers[number](number, frame)
        arrived.append(number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, defer)
    try:
        yield
    finally:
        for own, former in handlers.items():
            signal.signal(own, former)
        for own in arrived[:1]:
            handlers[own](own, None)


def is_logged(record: logging.LogRecord) -> bool:
    """Tell Py4J's stack of a call that Ctrl-C or the end of the JVM ended from all else."""
    return not str(record.msg).endswith(
        (" while sending command.", " while shutting down connection")
    )


_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.maxConcurrentOutputFileWriters": "1000",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.hadoop.parquet.block.row.count.limit": "1000000",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.pandas.udf.buffer.size": str(2**20),
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.ui.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.redaction.regex": "(?i)secret|password|token|dsn|url",
    "spark.executor.extraJavaOptions": EXECUTOR_OPTIONS,
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(2**30),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(2**28),
}
"""Joins are broadcast where a job says so; partition columns keep the types of ``tables``. Times of
nanoseconds in Parquet, which Spark has no type for, are read as whole numbers. Names of metrics are
lowered by Java: ICU would first make a table of all letters, for more than a second. Folders are
listed by at most 32 tasks, as a task for each costs more than its folder.

Batches of Arrow end after 50,000 rows. With a limit of bytes Spark weighs the batch for each row,
which takes as long as all else; ``ingest`` sets one for the contents of files. The JVM and Python
take turns for each buffer, and wait for each other where the cores are busy: a mebibyte is an hour.

Row groups of Parquet end after a million rows: bytes alone let one group hold nearly all rows of a
file whose names repeat, and a scan gives each group to one core. What is cached is small and used
at once: compressing it takes longer than it saves.

Python's tasks make and drop arrays of megabytes. The C library would give each back to the system
at once and fault it in anew, page by page, which takes half of their time (``mallopt(3)``); so it
keeps up to 256 MiB for the next one.
"""

_CONNECT: Final = "sc://"
"""What the address of a Spark Connect server begins with."""

_REMOTE: Final = "SPARK_REMOTE"
_CONNECT_PORT: Final = 15002
_ANSWER_S: Final = 15.0

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit``: the JVM runs already, and is not ours to end."""

_SHUFFLES_PER_CORE: Final = 16
"""Of many rows, as what is sorted in a task takes memory on each core."""


@contextmanager
def spark_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Give a session for the block; only one that is started here is stopped at its end.

    An active session is used as it is, with our settings of SQL in a session of its own beside it,
    and is the active one again at the end. Below ``spark-submit`` its master and settings win over
    ours.

    Args:
        master: As ``spark-submit --master``, or the ``sc://`` address of a Spark Connect server;
            null leaves it to ``spark-submit`` or ``SPARK_REMOTE``, else it is this machine.
        settings: Spark settings that win over all others.

    Raises:
        UsageError: A setting cannot be changed in a session that runs already.
        InfrastructureError: There is no Java, or Spark does not start or answer.
    """
    settings, active = settings or {}, SparkSession.getActiveSession()
    with tempfile.TemporaryDirectory(prefix="quota-pipeline-") as folder:
        address = master or os.environ.get(_REMOTE, "")
        if active is not None:
            opened = _beside(active, settings)
        elif address.startswith(_CONNECT):
            opened = _connected(name, address, settings, Path(folder))
        else:
            opened = _started(name, master, settings, Path(folder))
        with opened as session:
            yield session


@contextmanager
def _beside(active: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    # PySpark's declarations lack the first, which Spark Connect has instead of the other.
    session: SparkSession = getattr(active, "cloneSession" if is_remote() else "newSession")()
    _configure(session, settings)
    _activate(session)
    try:
        yield session
    finally:
        with suppress(*_JVM_GONE):
            _activate(active)


def _activate(session: SparkSession) -> None:
    """Let Spark look names up in a session; Spark Connect has no other."""
    if not is_remote():
        SparkSession._activeSession = session  # noqa: SLF001 - PySpark has no public function for it
        jvm: Any = session._jvm  # noqa: SLF001
        jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001


def _configure(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Give a session that runs already our settings of SQL, and those of the command.

    Raises:
        UsageError: One of the command's cannot be changed there.
    """
    for name, value in {**_SETTINGS, **settings}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
        elif name in settings:
            message = f"--conf {name} cannot be changed in a session that runs."
            raise UsageError(message)


@contextmanager
def _connected(
    name: str, address: str, settings: Mapping[str, str], directory: Path
) -> Iterator[SparkSession]:
    """Open a session at a Spark Connect server, which goes on when the session ends."""
    host, port = _server_of(address)
    try:
        # PySpark would try for ten minutes.
        socket.create_connection((host, port), _ANSWER_S).close()
        session = SparkSession.builder.appName(name).remote(address).getOrCreate()
        session.addArtifacts(str(_packed(directory)), pyfile=True)
    except (OSError, PySparkException) as error:
        message = f"Spark Connect does not answer at {host}:{port}: {error}"
        raise InfrastructureError(message) from error
    try:
        _configure(session, settings)
        yield session
    finally:
        session.stop()


def _server_of(address: str) -> tuple[str, int]:
    """Return host and port of ``sc://host[:port][/;token=…]``; no message has the token.

    Raises:
        UsageError: There is no host, or the port is none.
    """
    url = urlsplit(address)
    with suppress(ValueError):
        if url.hostname:
            return url.hostname, url.port or _CONNECT_PORT
    message = f"The address of Spark Connect is not {_CONNECT}HOST:PORT."
    raise UsageError(message)


@contextmanager
def _started(
    name: str, master: str | None, settings: Mapping[str, str], directory: Path
) -> Iterator[SparkSession]:
    """Start Spark, maybe on a cluster; below ``spark-submit`` its JVM runs already."""
    for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
        logger.addFilter(is_logged)
    submitted = _GATEWAY in os.environ
    # PySpark would prefer it to a master.
    os.environ.pop(_REMOTE, None)
    # On a terminal Spark draws how far its stages are.
    chosen = {**_SETTINGS, "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    if not submitted:
        name_programs(directory)
        options = (DRIVER_OPTIONS, *options_of_archive(archive_of_runs()))
        chosen |= {"spark.master": LOCAL, "spark.driver.extraJavaOptions": " ".join(options)}
        if _is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            chosen |= _of_this_machine(directory)
    ours = {**settings, **({"spark.master": master} if master else {})}
    handler = signal.getsignal(signal.SIGINT)
    conf = SparkConf().setAppName(name).setAll([*chosen.items(), *ours.items()])
    try:
        # A JVM that is starting when its parent ends would never end.
        with deferred_interrupts():
            SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 - starts the JVM alone
        if submitted:
            conf.setAll(SparkConf().getAll()).setAll(list(ours.items()))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        reason = _of_java(str(error))
        message = f"Spark did not start on {master or conf.get('spark.master')}: {reason}"
        raise InfrastructureError(message) from error
    if threading.current_thread() is threading.main_thread() and handler is not None:
        # That of PySpark asks the JVM to cancel its jobs, and fails of the call it interrupts.
        signal.signal(signal.SIGINT, handler)
    try:
        session.sparkContext.setLogLevel("ERROR")
        if not _is_local(session.sparkContext.master):
            session.sparkContext.addPyFile(str(_packed(directory)))
        yield session
    finally:
        _stop(session)


def _is_local(master: str | None) -> bool:
    return (master or LOCAL).startswith("local")


def is_local(session: SparkSession) -> bool:
    """Tell whether tasks run on this machine, in the processes that this one starts."""
    return not is_remote() and _is_local(session.sparkContext.master)


def _packed(directory: Path) -> Path:
    """Return this program as a file that workers can import: data sources run there."""
    packed = directory / "app.zip"
    program = Path(__file__).parent.parent
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(program.rglob("*.py")):
            archive.write(file, file.relative_to(program.parent))
    return packed


def _of_this_machine(directory: Path) -> Mapping[str, str]:
    return {
        "spark.driver.memory": f"{heap_gib()}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{directory}",
        "spark.python.daemon.module": "app.pipeline.python_daemon",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.sql.shuffle.partitions": f"{_SHUFFLES_PER_CORE * (os.cpu_count() or 1)}",
    }


_JVM_GONE: Final = (Py4JError, ConnectionError)
"""What a call to a JVM that was killed raises."""


def _stop(session: SparkSession) -> None:
    """Stop the JVM too: another session of this process may want other settings of it."""
    context = session.sparkContext
    gateway = context._gateway  # noqa: SLF001 - PySpark has no public function to end its JVM
    with suppress(*_JVM_GONE):
        session.stop()
    if gateway is None or _GATEWAY in os.environ:
        return
    with suppress(*_JVM_GONE):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait()
    type(context)._gateway = type(context)._jvm = None  # noqa: SLF001


_RAISED: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)", re.MULTILINE
)
"""What Python raised in a task stands below the indented lines of the stack."""
_OURS: Final = re.compile(r"app\.pipeline\.errors\.(\w+): (.+)")
_OF_SPARK: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")
_RAISED_BY_JAVA: Final = re.compile(r"^: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
"""Below the line that says which call it was. Source: ``py4j.protocol.Py4JJavaError``."""
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)


@contextmanager
def spark_failures() -> Iterator[None]:
    """Say in a sentence what a task or Spark itself failed of.

    Raises:
        PipelineError: The one that a task raised.
        InfrastructureError: It failed of anything else.
        KeyboardInterrupt: Ctrl-C was first: it cancels the jobs, and what is asked of the JVM on
            the way out is answered by their failure.
    """
    try:
        yield
    except (PySparkException, *_JVM_GONE) as error:
        if _is_interrupted(error):
            raise KeyboardInterrupt from error
        raise _error_of(error) from error


def _is_interrupted(error: BaseException | None) -> bool:
    is_interrupt = isinstance(error, KeyboardInterrupt)
    return error is not None and (is_interrupt or _is_interrupted(error.__context__))


def _error_of(error: Exception) -> PipelineError:
    """Return what Python raised in a task, else Spark's own words."""
    text = str(error)
    if not isinstance(error, PySparkException | Py4JJavaError) and "\n" not in text:
        # Without a word of Java nothing answers there any more.
        message = "Spark failed: its JVM has ended; look whether the machine has enough memory"
        return InfrastructureError(message)
    raised = _RAISED.findall(text)
    if not raised:
        return InfrastructureError(f"Spark failed: {_of_java(text)}")
    if ours := _OURS.fullmatch(raised[-1]):
        kind: type[PipelineError] = getattr(errors, ours[1])
        return kind(ours[2])
    return InfrastructureError(f"A task failed: {raised[-1]}")


def _of_java(text: str) -> str:
    """Return what was raised and what caused it, without the stacks below them."""
    condition = _OF_SPARK.search(text)
    raised = [condition.group()] if condition else _RAISED_BY_JAVA.findall(text)
    failure = next(iter(raised or text.strip().splitlines()), "it does not say why")
    cause = [each for each in _CAUSE.findall(text)[-1:] if each not in failure]
    return ": ".join([failure, *cause])
