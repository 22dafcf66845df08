"""The Spark session: made here alone, so that every job computes under the same rules."""

import logging
import os
import re
import shlex
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

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from app.java import JavaMissingError, find_java
from app.pipeline import errors
from app.pipeline.class_archive import archive_of_runs, options_of_archive
from app.pipeline.errors import InfrastructureError, PipelineError, UsageError
from app.pipeline.options import LOCAL

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM wait until the block ends; the second does not wait.

    Only the main thread gets signals; a signal that is ignored stays so.
    """
    arrived: list[int] = []
    handlers: dict[int, Handler] = {}
    if threading.current_thread() is threading.main_thread():
        found = {int(number): signal.getsignal(number) for number in _ENDING}
        handlers = {number: handler for number, handler in found.items() if callable(handler)}

    def defer(number: int, frame: FrameType | None) -> None:
        if arrived:
            handlers[number](number, frame)
        arrived.append(number)

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived[:1]:
            handlers[number](number, None)


def is_logged(record: logging.LogRecord) -> bool:
    """Tell Py4J's stack of a call that Ctrl-C or the end of the JVM ended from all else."""
    return not str(record.msg).endswith(
        (" while sending command.", " while shutting down connection")
    )


_OFTEN: Final = 10
_JAVA: Final = " ".join(
    (
        "-XX:+UseParallelGC -XX:MetaspaceSize=256m",
        f"-XX:Tier4InvocationThreshold={5_000 * _OFTEN}",
        f"-XX:Tier4MinInvocationThreshold={600 * _OFTEN}",
        f"-XX:Tier4CompileThreshold={15_000 * _OFTEN}",
        f"-XX:Tier4BackEdgeThreshold={40_000 * _OFTEN}",
        "-XX:-DontCompileHugeMethods",
    )
)
"""Spark loads some 200 MB of classes; a smaller limit collects all garbage whenever it is met.

Each query brings code of its own, most of which runs for a short time. Java's second compiler would
take half of a small job's processor time for it, so it waits until code has run ten times as often
as by Java's own thresholds. Methods of more than 8000 bytes are compiled
as well: Java would interpret them.
"""

_LOGGING: Final = Path(__file__).absolute().with_name("log4j2.properties")
_DIRECTIVES: Final = _LOGGING.with_name("compiler_directives.json")
_DRIVER: Final = " ".join(
    (
        f"{_JAVA} -XX:InitialRAMPercentage=10 '-Dlog4j2.configurationFile={_LOGGING.as_uri()}'",
        "-XX:+UnlockDiagnosticVMOptions -XX:-DisplayVMOutput",
        shlex.quote(f"-XX:CompilerDirectivesFile={_DIRECTIVES}"),
    )
)
"""A heap that begins small is collected as a whole several times while it grows.

What plans queries and compiles their code never runs for long enough to earn the second compiler's
work: the directives leave it to the first. Java would say on the standard output that it has them.
"""

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
    "spark.driver.extraJavaOptions": _DRIVER,
    "spark.executor.extraJavaOptions": _JAVA,
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

_MODULE: Final = "--add-modules=jdk.incubator.vector"
PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SHUFFLES_PER_CORE: Final = 16
"""Of many rows, as what is sorted in a task takes memory on each core."""

_ROWS_OF_TASK: Final = 500_000
"""A task with fewer costs more than it saves."""

_HEAP_GIB_PER_CORE: Final = 2

_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


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
    active = SparkSession.getActiveSession()
    if active is not None:
        # PySpark's declarations lack the first, which Spark Connect has instead of the other.
        beside: SparkSession = getattr(active, "cloneSession" if is_remote() else "newSession")()
        _configure(beside, settings or {})
        _activate(beside)
        try:
            yield beside
        finally:
            with suppress(*_JVM_GONE):
                _activate(active)
        return
    for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
        logger.addFilter(is_logged)
    address = master or os.environ.get(_REMOTE, "")
    with tempfile.TemporaryDirectory(prefix="quota-pipeline-") as directory:
        if address.startswith(_CONNECT):
            session = _connected(name, address, settings or {}, Path(directory))
            try:
                yield session
            finally:
                session.stop()
            return
        session = _started(name, master, settings or {}, Path(directory))
        try:
            if not _is_local(session.sparkContext.master):
                session.sparkContext.addPyFile(str(_packed(Path(directory))))
            yield session
        finally:
            _stop(session)


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


def _connected(
    name: str, address: str, settings: Mapping[str, str], directory: Path
) -> SparkSession:
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
    _configure(session, settings)
    return session


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


def _activate(session: SparkSession) -> None:
    """Let Spark look names up in a session; Spark Connect has no other."""
    if not is_remote():
        SparkSession._activeSession = session  # noqa: SLF001 - PySpark has no public function for it
        jvm: Any = session._jvm  # noqa: SLF001
        jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001


def _started(
    name: str, master: str | None, settings: Mapping[str, str], directory: Path
) -> SparkSession:
    submitted = _GATEWAY in os.environ
    # PySpark would prefer it to a master.
    os.environ.pop(_REMOTE, None)
    conf = SparkConf().setAppName(name)
    # On a terminal Spark draws how far its stages are.
    conf.set("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    if not submitted:
        conf.setMaster(LOCAL)
        _prepare_environment(directory, master or LOCAL)
        conf.setAll(list(_sized(master or LOCAL, str(directory)).items()))
    conf.setAll(list(_SETTINGS.items()))
    if not submitted:
        classes = options_of_archive(archive_of_runs())
        conf.set("spark.driver.extraJavaOptions", " ".join((_DRIVER, *classes)))
    ours = {**settings, **({"spark.master": master} if master else {})}
    handler = signal.getsignal(signal.SIGINT)
    try:
        # A JVM that is starting when its parent ends would never end.
        with deferred_interrupts():
            SparkContext._ensure_initialized(conf=conf.setAll(list(ours.items())))  # noqa: SLF001 - starts the JVM alone
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
    session.sparkContext.setLogLevel("ERROR")
    if not submitted and _is_local(master) and PARTITIONS not in ours:
        shares = _SHUFFLES_PER_CORE * session.sparkContext.defaultParallelism
        session.conf.set(PARTITIONS, shares)
    return session


@contextmanager
def tasks_for(session: SparkSession, rows: int | None) -> Iterator[None]:
    """Divide what is shuffled in the block into as many tasks as so many rows need.

    Spark joins small tasks, but not those of what is cached.

    Args:
        session: Plans the block; that of Spark Connect does as it is set up.
        rows: That are divided at most; null where nobody knows.
    """
    if rows is None or is_remote():
        yield
        return
    before = str(session.conf.get(PARTITIONS))
    needed = max(-(-rows // _ROWS_OF_TASK), session.sparkContext.defaultParallelism)
    session.conf.set(PARTITIONS, min(int(before), needed))
    try:
        yield
    finally:
        session.conf.set(PARTITIONS, before)


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


def _prepare_environment(directory: Path, master: str) -> None:
    """Name the Python and the Java that workers and the driver start, where nobody has."""
    try:
        java = find_java()
    except JavaMissingError as error:
        raise InfrastructureError(str(error)) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if java != Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java":
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
        "spark.driver.memory": f"{_heap_gib()}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": directory,
        "spark.python.daemon.module": "app.pipeline.python_daemon",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }


def _heap_gib() -> int:
    """Return what its cores need, and at most a third of the memory of the machine or container.

    The JVM takes what it may have before it looks for garbage.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text().strip() if _LIMIT.exists() else ""
    memory = min(machine, int(limit)) if limit.isdecimal() else machine
    return max(1, min(memory // 2**30 // 3, _HEAP_GIB_PER_CORE * (os.cpu_count() or 1)))


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


_TRACEBACK: Final = "Traceback (most recent call last):"
_OURS: Final = re.compile(r"app\.pipeline\.errors\.(\w+): (.+)")
_LOST_CALL: Final = re.compile(
    r"An error occurred while calling \S+|.*Connection (refused|reset by peer)|.*Broken pipe"
    r"|Error while (sending|receiving|sending or receiving)|Answer from Java side is empty"
)
"""Without a word of Java: nothing answers there any more. Source: ``py4j.clientserver``."""
_OF_SPARK: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(: .+)?")
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
        before: BaseException | None = error
        while before is not None:
            if isinstance(before, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            before = before.__context__
        raise _error_of(str(error)) from error


def _error_of(text: str) -> PipelineError:
    ours = _OURS.findall(text)
    if not ours:
        return InfrastructureError(_sentence(text))
    name, sentence = ours[-1]
    kind: type[PipelineError] = getattr(errors, name)
    return kind(sentence.strip())


def _sentence(text: str) -> str:
    """Return what Python raised in a task, else Spark's own words."""
    if _TRACEBACK in text:
        # Below the indented lines of the stack stands what was raised.
        below = text.rpartition(_TRACEBACK)[2].splitlines()
        raised = [line for line in below if _RAISED.fullmatch(line)]
        if raised:
            return f"A task failed: {raised[0]}"
    if _LOST_CALL.fullmatch(text.strip()):
        return "Spark failed: its JVM has ended; look whether the machine has enough memory"
    return f"Spark failed: {_of_java(text)}"


def _of_java(text: str) -> str:
    """Return what was raised and what caused it, without the stacks below them."""
    condition = _OF_SPARK.search(text)
    raised = _RAISED_BY_JAVA.findall(text)
    lines = [condition.group()] if condition else raised or text.strip().splitlines()
    failure = lines[0].strip() if lines else "it does not say why"
    cause = _CAUSE.findall(text)[-1:]
    return ": ".join([failure, *(each for each in cause if each not in failure)])
