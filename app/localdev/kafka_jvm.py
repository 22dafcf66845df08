"""The JVM of a broker: its options, its archive of classes, its metrics agent.

A broker that shuts down in order writes the archive of its jars where there is none yet. Java
ignores an archive of other jars or of another release. Source: JEP 350.
"""

import fcntl
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

from app.java import JavaMissingError, find_java
from app.localdev.jars import class_path, metrics_agent
from app.localdev.local_directory import LocalDevError
from app.localdev.processes import HOST, run_to_end

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
            self._lock = _try_lock(self._archive.with_suffix(".lock"))

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


def _try_lock(path: Path) -> TextIOWrapper | None:
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


_TOOL_DEADLINE_S = 120


@dataclass(frozen=True)
class JvmOptions:
    """What differs between the broker and a tool.

    Attributes:
        heap: as after `-Xmx`.
        logging_file: of log4j 2.
        tools: add the jar of the tools.
        agent: as after `-javaagent:`.
        recording: writes the archive of the classes that this JVM loads.
        optimized: let the compiler take its time, for what is measured. Without it a program that
            runs for seconds or minutes takes half of the processor's time.
        others: further options.
    """

    heap: str = "256m"
    logging_file: Path | None = None
    tools: bool = False
    agent: str | None = None
    recording: ArchiveRecording | None = None
    optimized: bool = False
    others: tuple[str, ...] = ()


def java_command(main_class: str, options: JvmOptions) -> list[str]:
    """Return the command that runs a main class; its arguments follow.

    Raises:
        LocalDevError: no Java, or no jars.
    """
    java, jars = broker_program(tools=options.tools)
    command = [
        java,
        f"-Xmx{options.heap}",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-Dfile.encoding=UTF-8",
    ]
    if not options.optimized:
        command.append("-XX:TieredStopAtLevel=1")
    if options.logging_file is not None:
        command.append(f"-Dlog4j2.configurationFile={options.logging_file}")
    if options.agent is not None:
        command.append(f"-javaagent:{options.agent}")
    command += archive_options(java, jars)
    if options.recording is not None:
        command += options.recording.options()
    command.extend(options.others)
    return [*command, "-cp", os.pathsep.join(map(str, jars)), main_class]


def broker_program(*, tools: bool = False) -> tuple[str, list[Path]]:
    """Return the Java that runs a broker and its jars.

    Raises:
        LocalDevError: no Java, or no jars.
    """
    try:
        java = str(find_java())
    except JavaMissingError as error:
        raise LocalDevError(str(error)) from error
    return java, class_path(tools=tools)


def jvm_environment() -> dict[str, str]:
    """Return the environment of the broker and its tools, free of Java options of this shell."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


def run_tool(main_class: str, *arguments: str, tools: bool = False) -> CompletedProcess[str]:
    """Run one of Kafka's command-line programs to its end and return its output and exit code.

    Args:
        main_class: for example `kafka.admin.ConfigCommand`, which is kafka-configs.
        arguments: as on its command line.
        tools: the class is in kafka-tools, as `org.apache.kafka.tools.AclCommand` and
            `org.apache.kafka.tools.DumpLogSegments` are.
    """
    command = [*java_command(main_class, JvmOptions(tools=tools)), *arguments]
    return run_to_end(command, jvm_environment(), deadline_s=_TOOL_DEADLINE_S)


_ATTRIBUTES: Final = "(byte-rate|request-time|mutation-rate|tokens|throttle-time)"
_RESOURCES: Final = "(Produce|Fetch|Request|ControllerMutation)"

# The first pattern comes first: the names of a pair match that of a user as well.
_RULES: Final = f"""lowercaseOutputName: true
includeObjectNames: ["kafka.server:type=Produce,*", "kafka.server:type=Fetch,*",
  "kafka.server:type=Request,*", "kafka.server:type=ControllerMutation,*"]
rules:
- pattern: 'kafka.server<type={_RESOURCES}, user=(.*), client-id=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$4
  labels: {{resource: $1, user: $2, client_id: $3}}
- pattern: 'kafka.server<type={_RESOURCES}, user=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$3
  labels: {{resource: $1, user: $2}}
- pattern: 'kafka.server<type={_RESOURCES}, client-id=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$3
  labels: {{resource: $1, client_id: $2}}
"""
"""Source: KafkaMbean, ClientQuotaManager, ControllerMutationQuotaManager."""


def agent_option(directory: Path, port: int) -> str:
    """Write the agent's rules into a directory; return what follows `-javaagent:`.

    Raises:
        LocalDevError: the agent's jar cannot be fetched.
    """
    rules = directory / "jmx_exporter.yaml"
    rules.write_text(_RULES, encoding="utf-8")
    return f"{metrics_agent()}={HOST}:{port}:{rules}"
