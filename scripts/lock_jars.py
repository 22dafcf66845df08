"""Lock the class paths of the local brokers anew, and those of tests on clusters.

Change the versions here and in app/localdev/jars.py, run this with `.venv/bin/python`, and read
the diff.
"""

import hashlib
from collections.abc import Iterable

import jgo
from jgo.maven import MavenContext

from app.localdev.jars import (
    AGENT_LOCK,
    KAFKA_VERSION,
    OTHER_KAFKA_VERSIONS,
    STRIMZI_QUOTAS_LOCK,
    TOOLS_ARTIFACT,
    Jar,
    lock_file,
)

LOG4J = "org.apache.logging.log4j:{}:2.25.1"
HADOOP = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.apache.hadoop:hadoop-client-api:3.5.0",
    "org.apache.hadoop:hadoop-client-runtime:3.5.0",
    "org.slf4j:slf4j-reload4j:1.7.36",
    # The ResourceManager does not start without it.
    "org.bouncycastle:bcpkix-jdk18on:1.82",
)
"""The daemons of HDFS and YARN, for tests of the pipeline on a cluster."""

S3A = "org.apache.hadoop:hadoop-aws:3.4.2"
"""Of the Hadoop that PySpark brings."""

SDK = "software.amazon.awssdk:{}:2.35.4"
SDK_GROUPS = {"software.amazon.awssdk", "software.amazon.eventstream", "org.reactivestreams"}
SDK_GROUPS |= {"org.apache.httpcomponents"}
"""What of its dependencies Spark lacks. All of the SDK as one bundle has 600 MB, this 13."""

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"

STRIMZI_QUOTAS = "io.strimzi:kafka-quotas-plugin:0.3.1"
"""A quota callback; what it needs the broker has."""

AGENT = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"

TEST_GROUPS = {"junit", "net.bytebuddy", "org.hamcrest", "org.mockito", "org.objenesis"}
"""The tests of ZooKeeper's dependencies, which no broker needs."""

HEADER = "# {}. Written by scripts/lock_jars.py; read by app/localdev/jars.py.\n"


def main() -> None:
    """Resolve each class path and write what it consists of."""
    for version in (KAFKA_VERSION, *OTHER_KAFKA_VERSIONS):
        broker = _broker(version)
        # Of the tools' own dependencies, those of Connect, nothing is needed here.
        tools = f"{broker}+org.apache.kafka:{TOOLS_ARTIFACT}:{version}"
        (tools_jar,) = (jar for jar in _resolve(tools) if jar.artifact == TOOLS_ARTIFACT)
        _write(f"kafka-{version}", [*_resolve(broker), tools_jar])
    _write("hadoop", _resolve("+".join(HADOOP)))
    s3a = [jar for jar in _resolve(S3A) if jar.artifact == "hadoop-aws"]
    sdk = [jar for jar in _resolve(SDK.format("s3")) if jar.group in SDK_GROUPS]
    # What these two depend on is what s3 depends on; the parent of one has no version.
    alone = [_alone(SDK.format(name)) for name in ("s3-transfer-manager", "sts")]
    _write("s3a", [*s3a, *sdk, *alone])
    _write("iceberg", _resolve(ICEBERG))
    # PySpark brings the rest, but for the client of Unity Catalog.
    _write("delta", [jar for jar in _resolve(DELTA) if jar.group == "io.delta"])
    _write(STRIMZI_QUOTAS_LOCK, [_alone(STRIMZI_QUOTAS)])
    # The agent's jar holds what it needs.
    _write(AGENT_LOCK, [jar for jar in _resolve(AGENT) if jar.artifact in AGENT])


def _broker(version: str) -> str:
    artifacts = [
        f"org.apache.kafka:kafka_2.13:{version}",
        # Named, because an older one is chosen otherwise, with which the broker dies.
        f"org.apache.kafka:kafka-clients:{version}",
        LOG4J.format("log4j-slf4j-impl"),
        LOG4J.format("log4j-core"),
    ]
    if version.startswith("3."):
        # Its own code calls log4j 1, which this hands over to log4j 2.
        artifacts.append(LOG4J.format("log4j-1.2-api"))
    return "+".join(artifacts)


def _resolve(endpoint: str) -> list[Jar]:
    locked = jgo.build(endpoint, update=True).lockfile.dependencies
    return [
        Jar(jar.groupId, jar.artifactId, jar.version, jar.sha256)
        for jar in locked
        if jar.groupId not in TEST_GROUPS
    ]


def _alone(artifact: str) -> Jar:
    """Fetch a jar without its dependencies."""
    group, name, version = artifact.split(":")
    jar = MavenContext().project(group, name).at_version(version).artifact().resolve()
    return Jar(group, name, version, hashlib.sha256(jar.read_bytes()).hexdigest())


def _write(name: str, jars: Iterable[Jar]) -> None:
    lines = sorted(f"{jar.group}:{jar.artifact}:{jar.version} {jar.sha256}\n" for jar in jars)
    lock_file(name).write_text(HEADER.format(name) + "".join(lines))


if __name__ == "__main__":
    main()
