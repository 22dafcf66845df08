"""Jars fetched once from Maven Central, checked by SHA-256: the broker, its tools, its agent."""

import fcntl
import hashlib
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from jgo.config import GlobalSettings
from jgo.env import LockedDependency, LockFile
from jgo.maven import MavenContext

from app.localdev.errors import LocalDevError

KAFKA_VERSION = "4.3.1"

BROKER_JARS = Path(__file__).with_name("kafka_jars.toml")
TOOLS_JARS = Path(__file__).with_name("kafka_tools_jars.toml")
AGENT_JARS = Path(__file__).with_name("jmx_exporter_jars.toml")

_DOWNLOADS_AT_ONCE = 8


def class_path(*, tools: bool = False) -> list[Path]:
    """Return the jars of the broker, fetched when the local Maven repository lacks them.

    A warm repository needs no network. Processes that fetch at the same time take turns.

    Args:
        tools: add the jar of kafka-acls and DumpLogSegments.

    Raises:
        LocalDevError: a jar cannot be fetched, or is not the one that was locked.
    """
    return _present(_locked(BROKER_JARS) + (_locked(TOOLS_JARS) if tools else []))


def metrics_agent() -> Path:
    """Return the jar of the JMX exporter's agent, fetched likewise.

    Raises:
        LocalDevError: it cannot be fetched, or is not the one that was locked.
    """
    (jar,) = _present(_locked(AGENT_JARS))
    return jar


def _present(wanted: Sequence[LockedDependency]) -> list[Path]:
    repository = _context().repo_cache
    if _wrong(repository, wanted):
        with _one_at_a_time(repository):
            _fetch(repository, _wrong(repository, wanted))
    return [_path(repository, jar) for jar in wanted]


def _locked(lock_file: Path) -> list[LockedDependency]:
    jars: list[LockedDependency] = LockFile.load(lock_file).dependencies
    return jars


def _context() -> MavenContext:
    settings = GlobalSettings.load()
    return MavenContext(
        repo_cache=settings.repo_cache, remote_repos=settings.repositories or None, timeout=30
    )


def _path(repository: Path, jar: LockedDependency) -> Path:
    folder = repository.joinpath(*jar.groupId.split("."), jar.artifactId, jar.version)
    return folder / f"{jar.artifactId}-{jar.version}.jar"


def _wrong(repository: Path, jars: Sequence[LockedDependency]) -> list[LockedDependency]:
    return [jar for jar in jars if _sha256(_path(repository, jar)) != jar.sha256]


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _one_at_a_time(repository: Path) -> Iterator[None]:
    try:
        repository.mkdir(parents=True, exist_ok=True)
        lock = (repository / ".kafka-quota-service.lock").open("w")
    except OSError as error:
        raise LocalDevError(
            f"The jars cannot be stored in {repository} ({error.strerror}): "
            "set M2_REPO to a directory that you may write to."
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(repository: Path, jars: Sequence[LockedDependency]) -> None:
    if not jars:
        return
    logging.getLogger("jgo").setLevel(logging.CRITICAL)
    _say(f"Fetching {_count(jars)} (only this once) ...")
    begun = time.monotonic()
    for jar in jars:
        _path(repository, jar).unlink(missing_ok=True)
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
        for done in [pool.submit(_download, jar) for jar in jars]:
            done.result()
    _refuse(repository, _wrong(repository, jars))
    _say(f"Fetched them in {time.monotonic() - begun:.0f} s.")


def _count(jars: Sequence[LockedDependency]) -> str:
    if len(jars) == 1:
        return f"{jars[0].artifactId} {jars[0].version}"
    return f"{len(jars)} jars of Kafka {KAFKA_VERSION}, about 45 MB"


def _download(jar: LockedDependency) -> None:
    try:
        component = _context().project(jar.groupId, jar.artifactId).at_version(jar.version)
        component.artifact().resolve()
    except (OSError, RuntimeError) as error:
        raise LocalDevError(
            f"The jars of Kafka {KAFKA_VERSION} cannot be fetched ({type(error).__name__} at "
            f"{jar.artifactId}): connect this machine to the internet, or name a Maven mirror "
            "under [repositories] in jgo's configuration, and try again."
        ) from error


def _refuse(repository: Path, jars: Sequence[LockedDependency]) -> None:
    for jar in jars:
        _path(repository, jar).unlink(missing_ok=True)
    if jars:
        names = ", ".join(f"{jar.artifactId}-{jar.version}.jar" for jar in jars)
        raise LocalDevError(
            f"What was fetched is not what was locked ({names}): check the Maven mirror "
            "in use, then try again."
        )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
