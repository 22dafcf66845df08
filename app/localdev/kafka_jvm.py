"""The JVM of a broker: its options, and its metrics agent."""

import os
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

from app.java import JavaMissingError, find_java
from app.localdev.jars import class_path, metrics_agent
from app.localdev.local_directory import LocalDevError
from app.localdev.processes import HOST, run_to_end

_TOOL_DEADLINE_S = 120

QUICK_START = "-XX:TieredStopAtLevel=1"
"""The first compiler alone: a program of minutes takes half of the processor's time."""


def java_command(main_class: str, *options: str, tools: bool = False) -> list[str]:
    """Return the command that runs a main class with options of the JVM; its arguments follow."""
    try:
        java = str(find_java())
    except JavaMissingError as error:
        raise LocalDevError(str(error)) from error
    jars = os.pathsep.join(map(str, class_path(tools=tools)))
    usual = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8")
    return [java, *usual, *options, "-cp", jars, main_class]


def jvm_environment() -> dict[str, str]:
    """Return the environment of the broker and its tools, free of Java options of this shell."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


def run_tool(
    main_class: str, *arguments: str, java_options: Sequence[str] = (), tools: bool = False
) -> CompletedProcess[str]:
    """Run one of Kafka's command-line programs to its end and return its output and exit code.

    Args:
        main_class: for example `kafka.admin.ConfigCommand`, which is kafka-configs.
        arguments: as on its command line.
        java_options: further options of its JVM.
        tools: the class is in kafka-tools, as `org.apache.kafka.tools.AclCommand` and
            `org.apache.kafka.tools.DumpLogSegments` are.
    """
    command = java_command(main_class, "-Xmx256m", QUICK_START, *java_options, tools=tools)
    return run_to_end([*command, *arguments], jvm_environment(), deadline_s=_TOOL_DEADLINE_S)


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
    """Write the agent's rules into a directory; return the option that loads it."""
    rules = directory / "jmx_exporter.yaml"
    rules.write_text(_RULES, encoding="utf-8")
    return f"-javaagent:{metrics_agent()}={HOST}:{port}:{rules}"
