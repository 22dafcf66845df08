"""Spark's classes as Java has parsed and checked them, in a file for later runs.

To load them takes a fifth of the processor time of an hour's run. Source: JEP 350, dynamic
class-data sharing. Java ignores an archive that does not fit its version and the jars; what it
would say of that on the standard output is left out.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

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
