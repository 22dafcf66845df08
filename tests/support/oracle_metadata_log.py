"""The metadata log of a real node, read from its files by Kafka's own decoder."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka_jvm import run_tool
from tests.support.history import Write
from tests.support.oracle import LogRecord, Oracle

NO_LINGER = {"controller.quorum.append.linger.ms": "0"}
"""With this property of the controller a record is at most a few milliseconds later than its
batch, whose time it bears."""

_RECORD = re.compile(r"\| offset: \d+ CreateTime: (\d+) .* payload: (\{.*\})")
_TYPE = "CLIENT_QUOTA_RECORD"


def metadata_log(node_directory: Path) -> Oracle:
    """Return the client-quota records of a node, from its first start on."""
    segments = sorted((node_directory / "data" / "__cluster_metadata-0").glob("*.log"))
    done = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        ",".join(str(segment) for segment in segments),
        tools=True,
    )
    assert done.returncode == 0, done.stdout
    return Oracle(list(read_dump(done.stdout)), timedelta(milliseconds=10))


def read_dump(text: str) -> Iterator[LogRecord]:
    """Read what DumpLogSegments printed. Source: ``ClientQuotaRecord``."""
    for line in text.splitlines():
        found = _RECORD.match(line)
        if found is None or _TYPE not in found[2]:
            continue
        payload = json.loads(found[2])
        if payload["type"] == _TYPE:
            at = datetime.fromtimestamp(int(found[1]) / 1000, UTC)
            yield LogRecord(at, _write(payload["data"]))


def _write(data: dict[str, object]) -> Write:
    parts = data["entity"]
    assert isinstance(parts, list)
    entity = ClientQuotaEntity.of({part["entityType"]: part["entityName"] for part in parts})
    value = None if data["remove"] else float(str(data["value"]))
    return Write(entity, str(data["key"]), value)
