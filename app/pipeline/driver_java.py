"""The Java of Spark's driver: which it is, its options, its memory, and an archive of its classes.

An archive has Spark's classes as Java has parsed and checked them: to load them takes a fifth of
the processor time of an hour's run. Source: JEP 350, dynamic class-data sharing. Java ignores an
archive that does not fit its version and the jars; what it would say of that on the standard output
is left out.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.java import JavaMissingError, find_java
from app.pipeline.errors import InfrastructureError

_OFTEN: Final = 10
EXECUTOR_OPTIONS: Final = " ".join(
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
as by Java's own thresholds. Methods of more than 8000 bytes are compiled as well: Java would
interpret them.
"""

_LOGGING: Final = Path(__file__).absolute().with_name("log4j2.properties")
_DIRECTIVES: Final = _LOGGING.with_name("compiler_directives.json")
DRIVER_OPTIONS: Final = " ".join(
    (
        f"{EXECUTOR_OPTIONS} -XX:InitialRAMPercentage=10",
        f"'-Dlog4j2.configurationFile={_LOGGING.as_uri()}'",
        "-XX:+UnlockDiagnosticVMOptions -XX:-DisplayVMOutput",
        shlex.quote(f"-XX:CompilerDirectivesFile={_DIRECTIVES}"),
    )
)
"""A heap that begins small is collected as a whole several times while it grows.

What plans queries and compiles their code never runs for long enough to earn the second compiler's
work: the directives leave it to the first. Java would say on the standard output that it has them.
"""

_MODULE: Final = "--add-modules=jdk.incubator.vector"
_HEAP_GIB_PER_CORE: Final = 2
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-quota-service"
)
_QUIET: Final = "-Xlog:disable"


def archive_of_runs() -> Path:
    """Return the file of Spark's classes, which is absent until ``warm`` wrote it."""
    found = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (found.origin if found else "")
    return CACHE / f"pipeline-{sha256(str(home).encode()).hexdigest()[:16]}.jsa"


def options_of_archive(archive: Path) -> Sequence[str]:
    """Return the options of a Java that takes its classes from an archive, if there is one."""
    if not archive.exists():
        return ()
    return shlex.quote(f"-XX:SharedArchiveFile={archive}"), _QUIET


@contextmanager
def written_at_exit(archive: Path) -> Iterator[str]:
    """Give the options of a Java that ends with the block and writes the archive."""
    with TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder) / "classes.jsa"
        yield shlex.join([f"-XX:ArchiveClassesAtExit={written}", _QUIET])
        if written.exists():
            written.rename(archive)


def name_programs(directory: Path) -> None:
    """Name the Python and the Java that Spark starts, where nobody has.

    Args:
        directory: For a JAVA_HOME, if none is named or it is too old.

    Raises:
        InfrastructureError: There is no such Java.
    """
    try:
        java = find_java()
    except JavaMissingError as error:
        raise InfrastructureError(str(error)) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if java != Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java":
        os.environ["JAVA_HOME"] = str(_java_home(java, directory))


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


def heap_gib() -> int:
    """Return what its cores need, and at most a third of the memory of the machine or container.

    The JVM takes what it may have before it looks for garbage.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text().strip() if _LIMIT.exists() else ""
    memory = min(machine, int(limit)) if limit.isdecimal() else machine
    return max(1, min(memory // 2**30 // 3, _HEAP_GIB_PER_CORE * (os.cpu_count() or 1)))
