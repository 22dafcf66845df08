"""What really happened: the records of the metadata log, read by Kafka's own decoder."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from app.domain.entities import ClientQuotaEntity
from app.localdev.jars import kafka_version
from app.localdev.kafka_jvm import run_tool
from tests.testkit.history.events import LogRecord, Write

NO_LINGER = {"controller.quorum.append.linger.ms": "0", "metadata.max.idle.interval.ms": "0"}
"""The controller writes a batch as soon as it can, not 25 ms later: an alteration takes as much
less, and the times of the records are exact. While nothing is altered it writes nothing."""

_RECORD = re.compile(r"\| offset: \d+ CreateTime: (\d+) .* payload: (\{.*\})")
_TYPE = "CLIENT_QUOTA_RECORD"


def metadata_log(node_directory: Path) -> list[LogRecord]:
    """Return the client-quota records of a node, from its first start on."""
    segments = sorted((node_directory / "data" / "__cluster_metadata-0").glob("*.log"))
    # Version 4.3 moved it.
    package = "kafka.tools" if kafka_version() < "4.3" else "org.apache.kafka.tools"
    done = run_tool(
        f"{package}.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        ",".join(str(segment) for segment in segments),
        tools=True,
    )
    assert done.returncode == 0, done.stdout
    return read_dump(done.stdout)


def read_dump(text: str) -> list[LogRecord]:
    """Read what DumpLogSegments printed.

    A record bears the time at which its batch was begun, and a batch is written before the next
    one is begun. Source: ``ClientQuotaRecord``, ``BatchAccumulator``.
    """
    lines = [found for found in map(_RECORD.match, text.splitlines()) if found]
    records: list[LogRecord] = []
    begun = next_begun = datetime.max.replace(tzinfo=UTC)
    for line in reversed(lines):
        at = datetime.fromtimestamp(int(line[1]) / 1000, UTC)
        if at != begun:
            begun, next_begun = at, begun
        payload = json.loads(line[2]) if _TYPE in line[2] else {"type": ""}
        if payload["type"] == _TYPE:
            records.append(LogRecord(at, _write(payload["data"]), next_begun))
    return records[::-1]


def _write(data: dict[str, object]) -> Write:
    components = data["entity"]
    assert isinstance(components, list)
    entity = ClientQuotaEntity.of(
        {component["entityType"]: component["entityName"] for component in components}
    )
    value = None if data["remove"] else float(str(data["value"]))
    return Write(entity, str(data["key"]), value)
