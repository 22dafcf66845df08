"""What clients saw, and what the cluster has written; all times are by the clock of the machine."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from app.domain.entities import ClientQuotaEntity
from app.localdev.jars import kafka_version
from app.localdev.kafka import run_tool


class Write(NamedTuple):
    """One key of one entity set to a value, or removed (null).

    Every alteration uses values that no other uses, so that a record of the cluster names it.
    """

    entity: ClientQuotaEntity
    key: str
    value: float | None


class LogRecord(NamedTuple):
    """One client-quota record of the metadata log; a value of null is a removal.

    Attributes:
        at: Not earlier was it written, and
        latest: not later.
    """

    at: datetime
    write: Write
    latest: datetime


class End(StrEnum):
    """How a call ended, as its client must see it; one that never came back is UNKNOWN too."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Call:
    """One request to alter; its end and its answer are noted when it has ended.

    Attributes:
        number: Unique in the run.
        client: Who called.
        writes: What was asked for, in the order of the request.
        expected: The values that had to hold, by entity and key (null: not set).
        idempotency_key: Null where none was sent.
        answer: The status and the members of the answer that say what became of it.
    """

    number: int
    client: str
    writes: tuple[Write, ...]
    began: datetime
    expected: tuple[Write, ...] = ()
    idempotency_key: str | None = None
    ended: datetime | None = None
    answer: "Answer | None" = None

    @property
    def end(self) -> End:
        return self.answer.end if self.answer else End.UNKNOWN

    @property
    def entities(self) -> tuple[ClientQuotaEntity, ...]:
        return tuple(dict.fromkeys(write.entity for write in self.writes))

    @property
    def outcomes(self) -> Mapping[ClientQuotaEntity, str]:
        """What the answer says of each entity; empty where it says nothing."""
        fields = self.answer.outcomes if self.answer else ()
        return dict(zip(self.entities, fields, strict=False))


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer says.

    Attributes:
        alteration_id: Whose outcome it tells; null where nothing was recorded.
        outcomes: One for each entity, in the order of the request; empty where it has none.
        retry: ``safe``, ``same-key-only``, ``never``, or null where all went well.
        replayed: Whether it answers an earlier request with the same key.
    """

    status: int
    code: str | None = None
    sent_to_cluster: str | None = None
    retry: str | None = None
    alteration_id: str | None = None
    outcomes: tuple[str, ...] = ()
    replayed: bool = False

    @property
    def end(self) -> End:
        if self.status in {200, 207}:
            return End.OK
        return End.FAIL if self.sent_to_cluster == "no" else End.UNKNOWN


def answer_of(status: int, document: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
    """Read an answer; the alteration that a busy entity waits for is another one's."""
    busy = document.get("code") == "entity-busy"
    return Answer(
        status,
        document.get("code"),
        document.get("sent_to_cluster"),
        document.get("retry"),
        None if busy else document.get("alteration_id"),
        tuple(result["outcome"] for result in document.get("results") or ()),
        headers.get("Idempotent-Replayed") == "true",
    )


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
