"""The classes of a broker and of Spark as Java has parsed them, cached for all runs.

Parsing them is half of a start. Source: JEP 350, dynamic class-data sharing. Java ignores an
archive that does not fit.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from app.java import find_java
from app.localdev.jars import class_path
from app.localdev.kafka import LocalKafka
from app.pipeline.driver_java import CACHE


@cache
def shared_classes() -> tuple[str, ...]:
    """Return the options of Java that take a broker's classes from the archive.

    The first call on a machine starts a broker, which writes the archive when it stops. There is
    none where Java lacks the archive of its own classes.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"broker-{_digest(*class_path())}.jsa"
    with (CACHE / "broker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _write(archive)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def _digest(*jars: Path) -> str:
    """Return a name for this Java and these jars, which is all that an archive depends on.

    The Java is named by its version: a Spark of this process has it by a path of its own.
    """
    java = subprocess.run([find_java(), "-version"], capture_output=True, check=True).stderr
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in jars]
    return hashlib.sha256(repr((java, stats)).encode()).hexdigest()[:16]


def _write(archive: Path) -> None:
    with TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder) / "classes.jsa"
        with LocalKafka(
            Path(folder) / "broker", java_options=(f"-XX:ArchiveClassesAtExit={written}",)
        ):
            pass
        if written.exists():
            written.rename(archive)


@cache
def spark_home() -> Path:
    """Return a Spark for all checkouts: an archive is of jars by their paths and times.

    Its files are those of the installed package, by another name where the disk allows it.
    """
    home = CACHE / f"spark-{version('pyspark')}"
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as folder:
            copied, found = Path(folder) / "spark", find_spec("pyspark")
            assert found is not None
            assert found.origin is not None
            for name in ("bin", "jars", "python"):
                source = Path(found.origin).with_name(name)
                shutil.copytree(source, copied / name, copy_function=_link)
            with suppress(OSError):  # another run has just made it
                copied.rename(home)
    return home


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def archive_of_spark() -> Path:
    """Return the file of Spark's classes, which is absent until a run of all tests wrote it."""
    return CACHE / f"spark-{_digest(*sorted((spark_home() / 'jars').iterdir()))}.jsa"
