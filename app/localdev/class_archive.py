"""Class-data sharing for the broker's JVM: it starts with the classes of an earlier broker loaded.

A broker that shuts down in order writes the archive of its jars where there is none yet. Java
ignores an archive of other jars or of another release. Source: JEP 350.
"""

import fcntl
import hashlib
import os
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

_QUIET = "-Xlog:cds*=off"


def archive_path(java: str, jars: Sequence[Path]) -> Path:
    """Return where the archive for this Java and these jars is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    build = Path(java).resolve()
    inputs = "\n".join(map(str, (build, build.stat().st_mtime_ns, *jars)))
    digest = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    return cache / "kafka-quota-service" / f"kafka-{digest}.jsa"


def archive_options(java: str, jars: Sequence[Path]) -> list[str]:
    """Return the options that use the archive, where there is one."""
    archive = archive_path(java, jars)
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.exists() else []


class ArchiveRecording:
    """Writes a missing archive when a JVM ends in order; one process at a time does so."""

    def __init__(self, java: str, jars: Sequence[Path]) -> None:
        """Take the lock of the archive, unless there is one or another process has the lock."""
        self._archive = archive_path(java, jars)
        self._lock: TextIOWrapper | None = None
        if not self._archive.exists():
            self._lock = _locked(self._archive.with_suffix(".lock"))

    @property
    def _unfinished(self) -> Path:
        return self._archive.with_suffix(".part")

    def options(self) -> list[str]:
        """Return the options of the JVM that is to write the archive."""
        if self._lock is None:
            return []
        self._unfinished.unlink(missing_ok=True)
        return [f"-XX:ArchiveClassesAtExit={self._unfinished}", _QUIET]

    def finish(self, *, complete: bool) -> None:
        """Publish what the JVM wrote, if it ended by itself; release the lock."""
        if self._lock is None:
            return
        if complete and self._unfinished.exists():
            self._unfinished.replace(self._archive)
        self._unfinished.unlink(missing_ok=True)
        self._lock.close()
        self._lock = None


def _locked(path: Path) -> TextIOWrapper | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock
