"""Command lines of the programs in the broker's class path."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from app.java import JavaMissingError, find_java
from app.localdev.class_archive import ArchiveRecording, archive_options
from app.localdev.errors import LocalDevError
from app.localdev.jars import class_path

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


def run_tool(
    main_class: str, *arguments: str, tools: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line programs to its end and return its output and exit code.

    Args:
        main_class: for example `kafka.admin.ConfigCommand`, which is kafka-configs.
        arguments: as on its command line.
        tools: the class is in kafka-tools, as `org.apache.kafka.tools.AclCommand` and
            `org.apache.kafka.tools.DumpLogSegments` are.
    """
    return subprocess.run(
        [*java_command(main_class, JvmOptions(tools=tools)), *arguments],
        env=jvm_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TOOL_DEADLINE_S,
        check=False,
    )
