"""The classes of a broker as Java has parsed them, cached for all runs: half of a broker's start.

Source: JEP 350, dynamic class-data sharing. Java ignores an archive that does not fit.
"""

import fcntl
import hashlib
import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from app.java import find_java
from app.localdev.jars import class_path
from app.localdev.kafka import LocalKafka


@cache
def shared_classes() -> tuple[str, ...]:
    """Return the options of Java that take a broker's classes from the archive.

    The first call on a machine starts a broker, which writes the archive when it stops. There is
    none where Java lacks the archive of its own classes.
    """
    folder = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-quota-service"
    )
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"broker-{_digest()}.jsa"
    with (folder / "broker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _write(archive)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def _digest() -> str:
    """Return a name for this Java and these jars, which is all that an archive depends on."""
    files = [find_java().resolve(), *class_path()]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def _write(archive: Path) -> None:
    with TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder) / "classes.jsa"
        with LocalKafka(
            Path(folder) / "broker", java_options=(f"-XX:ArchiveClassesAtExit={written}",)
        ):
            pass
        if written.exists():
            written.rename(archive)
