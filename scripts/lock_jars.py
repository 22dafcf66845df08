"""Lock the broker's class path anew, for another Kafka version.

Change `KAFKA_VERSION` in app/localdev/jars.py, run this with `.venv/bin/python`, and read the diff.
"""

from collections.abc import Iterable
from pathlib import Path

import jgo
from jgo.env import LockedDependency

from app.localdev.jars import AGENT_JARS, BROKER_JARS, KAFKA_VERSION, TOOLS_JARS

LOG4J_VERSION = "2.25.1"

BROKER = "+".join(
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        # Named, because an older one is chosen otherwise, with which the broker dies.
        f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
        f"org.apache.logging.log4j:log4j-core:{LOG4J_VERSION}",
    )
)
TOOLS = f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}"
AGENT = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"

HEADER = "# {}, locked. Written by scripts/lock_jars.py; read by app/localdev/jars.py.\n"
ENTRY = """
[[dependencies]]
groupId = "{0.groupId}"
artifactId = "{0.artifactId}"
version = "{0.version}"
sha256 = "{0.sha256}"
"""


def main() -> None:
    """Resolve each class path and write what it consists of."""
    _write(BROKER_JARS, "The class path of the local broker", _resolve(BROKER))
    # Of the tools' own dependencies, those of Connect, nothing is needed here.
    tools = [jar for jar in _resolve(f"{BROKER}+{TOOLS}") if jar.artifactId == "kafka-tools"]
    _write(TOOLS_JARS, "What kafka-acls and DumpLogSegments need besides", tools)
    # The agent's jar holds what it needs.
    agent = [jar for jar in _resolve(AGENT) if jar.artifactId == "jmx_prometheus_javaagent"]
    _write(AGENT_JARS, "What serves a broker's metrics", agent)


def _resolve(endpoint: str) -> list[LockedDependency]:
    jars: list[LockedDependency] = jgo.build(endpoint, update=True).lockfile.dependencies
    return jars


def _write(path: Path, title: str, jars: Iterable[LockedDependency]) -> None:
    ordered = sorted(jars, key=lambda jar: (jar.groupId, jar.artifactId))
    path.write_text(HEADER.format(title) + "".join(ENTRY.format(jar) for jar in ordered))


if __name__ == "__main__":
    main()
