"""Jars fetched once from Maven Central, checked by SHA-256: the broker, its tools, its agent."""

import fcntl
import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jgo.config import GlobalSettings
from jgo.maven import MavenContext

from app.localdev.local_directory import LocalDevError

KAFKA_VERSION = "4.3.1"
OTHER_KAFKA_VERSIONS = ("3.9.2", "4.0.2", "4.2.1")
"""Those on which `make faults` runs the conformance tests."""

TOOLS_ARTIFACT = "kafka-tools"
AGENT_LOCK = "jmx-exporter"
STRIMZI_QUOTAS_LOCK = "strimzi-quotas"

_DOWNLOADS_AT_ONCE = 8


class Jar(NamedTuple):
    """A locked artifact, written as `group:artifact:version sha256` on a line of its own."""

    group: str
    artifact: str
    version: str
    sha256: str


def lock_file(name: str) -> Path:
    """Return the file that locks the jars of a Kafka version, or of the agent."""
    return Path(__file__).parent / "jar_locks" / f"{name}.txt"


def kafka_version() -> str:
    """Return `QUOTAS_LOCAL_KAFKA_VERSION`, or the default."""
    return os.environ.get("QUOTAS_LOCAL_KAFKA_VERSION") or KAFKA_VERSION


def class_path(*, tools: bool = False) -> list[Path]:
    """Return the jars of the broker, fetched when the local Maven repository lacks them.

    A warm repository needs no network. Processes that fetch at the same time take turns.

    Args:
        tools: add the jar of kafka-acls and DumpLogSegments.
    """
    locked = _read_lock(f"kafka-{kafka_version()}")
    return _present([jar for jar in locked if tools or jar.artifact != TOOLS_ARTIFACT])


def metrics_agent() -> Path:
    """Return the jar of the JMX exporter's agent, fetched likewise."""
    (jar,) = jars_of(AGENT_LOCK)
    return jar


def jars_of(lock: str) -> list[Path]:
    """Return all jars of a lock, fetched likewise."""
    return _present(_read_lock(lock))


def _present(wanted: Sequence[Jar]) -> list[Path]:
    repository = _context().repo_cache
    if _wrong(repository, wanted):
        with _one_at_a_time(repository):
            _fetch(repository, _wrong(repository, wanted))
    return [_path(repository, jar) for jar in wanted]


def _read_lock(name: str) -> list[Jar]:
    path = lock_file(name)
    if not path.is_file():
        names = ", ".join(sorted(other.stem for other in path.parent.iterdir()))
        raise LocalDevError(f"No jars are locked for {name}, but for: {names}.")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [Jar(*line.replace(":", " ").split()) for line in lines]


def _context() -> MavenContext:
    settings = GlobalSettings.load()
    return MavenContext(
        repo_cache=settings.repo_cache, remote_repos=settings.repositories or None, timeout=30
    )


def _path(repository: Path, jar: Jar) -> Path:
    folder = repository.joinpath(*jar.group.split("."), jar.artifact, jar.version)
    return folder / f"{jar.artifact}-{jar.version}.jar"


def _wrong(repository: Path, jars: Sequence[Jar]) -> list[Jar]:
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


def _fetch(repository: Path, jars: Sequence[Jar]) -> None:
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


def _count(jars: Sequence[Jar]) -> str:
    if len(jars) == 1:
        return f"{jars[0].artifact} {jars[0].version}"
    return f"{len(jars)} jars, up to 60 MB"


def _download(jar: Jar) -> None:
    try:
        component = _context().project(jar.group, jar.artifact).at_version(jar.version)
        component.artifact().resolve()
    except (OSError, RuntimeError) as error:
        raise LocalDevError(
            f"The jar {jar.artifact} {jar.version} cannot be fetched ({type(error).__name__}): "
            "connect this machine to the internet, or name a Maven mirror under [repositories] in "
            "jgo's configuration, and try again."
        ) from error


def _refuse(repository: Path, jars: Sequence[Jar]) -> None:
    for jar in jars:
        _path(repository, jar).unlink(missing_ok=True)
    if jars:
        names = ", ".join(f"{jar.artifact}-{jar.version}.jar" for jar in jars)
        raise LocalDevError(
            f"What was fetched is not what was locked ({names}): check the Maven mirror "
            "in use, then try again."
        )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
