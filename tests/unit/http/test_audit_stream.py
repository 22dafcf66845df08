"""What a listener is sent: chunks, comments, an end."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.domain.alterations import KafkaRefusal
from app.domain.entities import (
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from app.domain.errors import ClusterAuthorizationError, NotSentError
from app.http.audit import AuditRow, row_bytes
from app.http.audit_stream import Stream
from app.http.guards import Granted
from app.http.models import model_bytes
from app.metrics import Metrics
from app.service.event_feed import MOST_RECENT, EventFeed, selects
from app.service.ports.audit_log import AuditQuery
from app.service.ports.audit_log import AuditRow as Row
from app.service.ports.events import BEGINNING, LogPosition
from tests.testkit.fake_ports import FakeEventLog
from tests.testkit.virtual_time import in_virtual_time

PLAN = {
    "plan_id": "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f",
    "owner": "team-a",
    "force": True,
    "taken_over": {"producer_byte_rate": "team-b"},
}
DENIED = {"entities": 2, "first": [{"user": "a"}, {"client-id": None}], "attempts": 3}

ROW = Row(
    cluster_id="c",
    alteration_id="01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f",
    at=datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC),
    principal="User:alice",
    authentication="bearer-token",
    client_address="10.0.0.7",
    action="alter",
    entity=ClientQuotaEntity.of({"user": "alice", "client-id": None}),
    ops=[{"key": "producer_byte_rate", "value": 2.0**63}, {"key": "x", "remove": True}],
    before={"producer_byte_rate": float("nan"), "consumer_byte_rate": 0.5},
    after=None,
    outcome="refused",
    reason="é\ud800",
    request_id="r",
    error=KafkaRefusal(None, "no"),
)


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        replace(ROW, reason=None, error=None, plan=PLAN),
        replace(ROW, expires_at=ROW.at, expires=ROW.alteration_id),
        replace(ROW, entity=None, ops=None, before=None, denied=DENIED, error=None),
    ],
)
def test_a_row_in_json_is_what_its_model_writes(row: Row):
    assert row_bytes(row) == model_bytes(AuditRow.model_validate(row))


class Log(FakeEventLog):
    """A log of events of one user each, whose document is the name."""

    def write(self, *users: str) -> None:
        for user in users:
            row = replace(ROW, entity=ClientQuotaEntity.of({"user": user}))
            self.add(row, document=user.encode())


class Cluster:
    async def cluster_id(self) -> str:
        return "c"


class Listening:
    """A listener that reads as a test asks it to."""

    def __init__(self, log: Log, query: AuditQuery | None = None) -> None:
        self.log = log
        self.held = ExitStack()
        self.metrics = Metrics()
        self.feed = EventFeed(log, Cluster(), self.metrics.of_cluster("c").events)
        self.query = query or AuditQuery()
        self.refusal: ClusterAuthorizationError | None = None

    async def confirm(self, *_: object) -> dict[str, object]:
        if self.refusal is not None:
            raise self.refusal
        return {}

    async def begin(self, after: LogPosition | None = None) -> AsyncIterator[bytes]:
        await self.feed.join(self.held)
        begin = await self.feed.start(None, None) if after is None else after
        granted = Granted(None, {}, self.confirm)  # type: ignore[arg-type]
        chunks = Stream(self.feed, self.query, granted, begin or BEGINNING).chunks()
        assert (await anext(chunks)).startswith(b"retry: ")
        return chunks


def data(chunk: bytes) -> list[str]:
    return re.findall("^data: (.*)$", chunk.decode(), re.MULTILINE)


@in_virtual_time
async def test_a_listener_gets_what_it_asks_for_and_a_comment_every_15_seconds():
    listening = Listening(Log(), AuditQuery(entity=of_user("b")))
    listening.log.write("b")
    chunks = await listening.begin()
    begun = asyncio.get_running_loop().time()
    listening.log.write("a", "b", "a")
    assert data(await anext(chunks)) == ["b"]
    for number in range(1, 4):
        listening.log.write("a")
        assert await anext(chunks) == b": nothing new\n\n"
        assert asyncio.get_running_loop().time() - begun == pytest.approx(15 * number, abs=1)
    listening.held.close()


@in_virtual_time
async def test_a_listener_that_is_far_behind_reads_the_log_in_bounded_chunks():
    listening = Listening(Log())
    chunks = await listening.begin()
    listening.log.write(*(f"{number}".rjust(1_000) for number in range(3 * MOST_RECENT)))
    read: list[str] = []
    while len(read) < 3 * MOST_RECENT:
        chunk = await anext(chunks)
        assert len(chunk) < 20_000
        read += data(chunk)
    assert [int(text) for text in read] == list(range(3 * MOST_RECENT))
    assert len(listening.feed._recent) <= MOST_RECENT
    listening.held.close()


@in_virtual_time
async def test_a_stream_ends_when_the_right_does_or_the_service_stops():
    listening = Listening(Log())
    chunks, others = await listening.begin(), await listening.begin()
    listening.refusal = ClusterAuthorizationError("no more")
    listening.log.write("a")
    assert [chunk async for chunk in chunks] == []
    listening.refusal = None
    assert data(await anext(others)) == ["a"]
    listening.feed.close()
    assert [chunk async for chunk in others] == []
    listening.held.close()
    with pytest.raises(NotSentError):
        await listening.begin()


@in_virtual_time
async def test_nobody_reads_the_log_when_nobody_listens():
    listening = Listening(Log())
    await listening.begin()
    assert (
        listening.metrics.registry.get_sample_value("quota_event_listeners", {"cluster": "c"}) == 1
    )
    listening.held.close()
    assert (
        listening.metrics.registry.get_sample_value("quota_event_listeners", {"cluster": "c"}) == 0
    )
    assert listening.feed._reading is None


def of_user(name: str) -> ClientQuotaFilter:
    return ClientQuotaFilter((ClientQuotaFilterComponent.of_entity("user", name),))


@pytest.mark.parametrize(
    ("query", "is_selected"),
    [
        (AuditQuery(), True),
        (AuditQuery(actor="User:alice", action="alter", outcome="refused"), True),
        (AuditQuery(actor="User:bob"), False),
        (AuditQuery(action="denied"), False),
        (AuditQuery(outcome="applied"), False),
        (AuditQuery(since=ROW.at), True),
        (AuditQuery(until=ROW.at), False),
        (AuditQuery(entity=of_user("alice")), True),
        (AuditQuery(entity=of_user("bob")), False),
    ],
)
def test_conditions_select_rows_as_the_log_does(query: AuditQuery, is_selected: bool):
    assert selects(query, ROW) == is_selected
    without = replace(ROW, entity=None)
    assert selects(query, without) == (is_selected and query.entity is None)
