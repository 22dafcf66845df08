"""What is produced to the topic of events, and when the position moves."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.metrics import Metrics
from app.service.event_topic import EventProducer, record_of
from app.service.ports.audit_log import AuditRow
from app.service.ports.events import (
    BEGINNING,
    Backlog,
    LoggedEvent,
    LogPosition,
    Record,
    end_of,
)
from tests.testkit.fake_ports import FakeEventLog
from tests.testkit.virtual_time import in_virtual_time

ROW = AuditRow(
    cluster_id="c",
    alteration_id="01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f",
    at=datetime(2026, 11, 21, tzinfo=UTC),
    principal="User:alice",
    authentication="bearer-token",
    client_address="10.0.0.7",
    action="alter",
    entity=ClientQuotaEntity.of({"user": "é\ud800", "client-id": None}),
    ops=[],
    before=None,
    after=None,
    outcome="applied",
    reason=None,
    request_id="r",
    error=None,
)
AT = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)


def test_a_record_is_a_cloud_event_in_binary_mode():
    record = record_of(LoggedEvent(LogPosition(7, 2), "outcome", 1, AT, ROW, b"{}"))
    assert record == Record(
        b'{"client-id":null,"user":"\xc3\xa9\xed\xa0\x80"}',
        b"{}",
        [
            ("ce_specversion", b"1.0"),
            ("ce_id", b"01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/1/2"),
            ("ce_type", b"kafka.quota.alteration.outcome"),
            ("ce_source", b"/clusters/c"),
            ("ce_time", b"2026-11-21T01:02:03.456Z"),
            ("content-type", b"application/json"),
        ],
    )
    denied = LoggedEvent(LogPosition(7, 0), "denied", 0, AT, replace(ROW, entity=None), b"{}")
    assert record_of(denied).key is None


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("intent", "intent"),
        ("outcome", "expire"),
        ("validated", "expire"),
        ("recovery", "recovery"),
    ],
)
def test_the_outcome_of_an_expiry_has_a_type_of_its_own(kind: str, type_: str):
    event = LoggedEvent(LogPosition(7, 0), kind, 1, AT, replace(ROW, action="expire"), b"{}")
    assert dict(record_of(event).headers)["ce_type"] == f"kafka.quota.alteration.{type_}".encode()


class Positions:
    """One position, and who may move it."""

    def __init__(self) -> None:
        self.owner = "me"
        self.at = BEGINNING

    async def claim(self, cluster_id: str, topic: str, owner: str) -> LogPosition | None:
        return self.at if owner == self.owner else None

    async def move(self, cluster_id: str, topic: str, owner: str, to: LogPosition) -> bool:
        if owner != self.owner:
            return False
        self.at = to
        return True

    async def give_back(self, topic: str, owner: str) -> None:
        self.owner = "nobody"

    async def backlog(self, cluster_id: str, topic: str) -> Backlog:
        return Backlog(0, 0.0)


class Topic:
    """A topic that takes as many batches as a test allows."""

    name = "events"

    def __init__(self) -> None:
        self.takes = 100
        self.values: list[bytes] = []

    async def append(self, records: Sequence[Record]) -> None:
        self.takes -= 1
        if self.takes < 0:
            raise NotSentError("It is away.")
        self.values += [record.value for record in records]

    async def close(self) -> None:
        """Nothing is in flight."""


class Cluster:
    async def cluster_id(self) -> str:
        return "c"


@in_virtual_time
async def test_the_position_moves_after_the_topic_has_acknowledged():
    log, positions, topic, metrics = FakeEventLog(), Positions(), Topic(), Metrics()
    producer = EventProducer(log, positions, topic, Cluster(), metrics.of_cluster("c").events, "me")
    for number in range(250):
        log.add(ROW, document=str(number).encode())
    topic.takes = 2
    with pytest.raises(NotSentError):
        await producer.round()
    assert positions.at == LogPosition(100, 0)
    assert len(topic.values) == 100
    topic.takes = 100
    await producer.round()
    assert topic.values == [str(number).encode() for number in range(250)]
    assert positions.at == end_of(250)
    counted = ("quota_events_produced_total", "quota_events_failures_total")
    value = metrics.registry.get_sample_value
    assert [value(name, {"cluster": "c"}) for name in counted] == [250, 1]
    positions.owner = "another"
    log.add(ROW)
    with pytest.raises(NotSentError):
        await producer.round()
    assert positions.at == end_of(250)
    await producer.round()
    assert len(topic.values) == 251
    await producer.close()
    assert positions.owner == "nobody"
