"""Whoever follows the log misses nothing, in the order of the log; who produces to a topic."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ClientQuotaEntity
from app.postgres.audit_log import PostgresJournal, append
from app.postgres.event_log import PAGE, PostgresEventLog, PostgresTopicPositions
from app.postgres.payload import start_event
from app.postgres.pool import Database, Lease
from app.postgres.recovery import PostgresRecovery
from app.service.ports.audit_log import AuditRow
from app.service.ports.events import BEGINNING, LoggedEvent, LogPosition
from tests.integration.postgres.calls import (
    Tables,
    concluded,
    found,
    in_doubt,
    request_of,
    run_as,
)
from tests.testkit.kafka import DEADLINE_S
from tests.testkit.postgres import (
    CLUSTER,
    AuditDatabase,
    audit_request,
    intend,
    record_conclusion,
)


def outcome_text(row: AuditRow) -> bytes:
    return row.outcome.encode()


@pytest.fixture
def log(database: Database) -> PostgresEventLog:
    return PostgresEventLog(database.querying, outcome_text)


async def follow(
    log: PostgresEventLog, after: LogPosition = BEGINNING, cluster_id: str = CLUSTER
) -> AsyncIterator[LoggedEvent]:
    """Yield what is settled now."""
    up_to = await log.settled()
    while after < up_to:
        page = await log.page(cluster_id, after, up_to)
        assert page.reached > after
        after = page.reached
        for event in page.events:
            yield event


async def names(log: PostgresEventLog) -> list[tuple[str, str | None]]:
    return [
        (event.kind, None if event.entity is None else event.entity.as_dict().get("user"))
        async for event in follow(log)
    ]


async def test_each_entity_of_each_event_comes_once_with_its_row_as_it_was_then(
    log: PostgresEventLog, journal: PostgresJournal, recovery: PostgresRecovery
):
    request = request_of("a", "b")
    await intend(journal, request)
    await record_conclusion(journal, concluded(request))
    doubtful = await in_doubt(journal, "c")
    seen = found(doubtful, Outcome.APPLIED, final=False)
    await recovery.record_recovery([seen])
    await recovery.record_recovery([replace(seen, final=True)])
    await journal.record_final(audit_request(action="denied"), {})
    events = [event async for event in follow(log)]
    assert [(event.kind, event.number, event.position.ordinal) for event in events] == [
        ("intent", 0, 0),
        ("intent", 0, 1),
        ("outcome", 1, 0),
        ("outcome", 1, 1),
        ("intent", 0, 0),
        ("outcome", 1, 0),
        ("recovery", 2, 0),
        ("recovery", 3, 0),
        ("denied", 0, 0),
    ]
    words = ["unknown"] * 2 + ["applied"] * 2 + ["unknown"] * 3 + ["applied", "refused"]
    assert [event.document.decode() for event in events] == words
    assert [event.entity is None for event in events] == [False] * 8 + [True]
    assert len({event.id for event in events}) == len(events)
    assert events[3].id == f"{request.alteration_id}/1/1"
    assert [event.occurred_at for event in events] == sorted(e.occurred_at for e in events)
    for event in events:
        assert await log.position_of(CLUSTER, event.id) == event.position
        assert await log.position_of("another", event.id) is None


async def test_nothing_is_passed_that_is_still_open(
    log: PostgresEventLog, journal: PostgresJournal, database: Database
):
    first, second = request_of("first"), request_of("second")
    written, commit = asyncio.Event(), asyncio.Event()

    async def write_slowly(lease: Lease) -> None:
        await append([start_event(first, {})], lease, commit=False)
        written.set()
        await commit.wait()

    slow = asyncio.create_task(database.denying.run(write_slowly, within_s=DEADLINE_S))
    await written.wait()
    await intend(journal, second)
    assert await names(log) == []
    commit.set()
    await slow
    assert await names(log) == [("validated", "first"), ("intent", "second")]


async def test_what_is_rolled_back_holds_up_nobody(log: PostgresEventLog, journal: PostgresJournal):
    for user in ("a", "b"):
        await journal.check_writable()
        await intend(journal, request_of(user))
    assert await names(log) == [("intent", "a"), ("intent", "b")]


async def test_a_reader_beside_many_writers_gets_every_event_in_the_order_of_its_entity(
    log: PostgresEventLog, journal: PostgresJournal, tables: Tables
):
    users = [f"user-{number}" for number in range(4)]

    async def write(user: str) -> None:
        for _ in range(25):
            request = request_of(user)
            await intend(journal, request)
            await record_conclusion(journal, concluded(request))

    writing = [asyncio.create_task(write(user)) for user in users]
    read: list[LoggedEvent] = []
    while len(read) < len(users) * 50:
        after = read[-1].position if read else BEGINNING
        read += [event async for event in follow(log, after)]
        await asyncio.sleep(0)
    await asyncio.gather(*writing)
    assert [event.position for event in read] == sorted({event.position for event in read})
    stored = tables.run("select alteration_id, seq from audit_event order by occurred_at, seq")
    assert {(str(row.alteration_id), row.seq) for row in stored} == {
        (event.row.alteration_id, event.number) for event in read
    }
    for user in users:
        own = [event for event in read if event.entity == ClientQuotaEntity.of({"user": user})]
        assert [event.kind for event in own] == ["intent", "outcome"] * 25
        assert [event.occurred_at for event in own] == sorted(e.occurred_at for e in own)


async def test_large_events_are_read_in_pages_that_each_go_on_where_the_last_ended(
    log: PostgresEventLog, journal: PostgresJournal
):
    request = request_of(*map(str, range(2_500)))
    await intend(journal, request)
    page = await log.page(CLUSTER, BEGINNING, await log.settled())
    assert page.reached.ordinal == len(page.events) - 1 < 2_499
    events = [event async for event in follow(log)]
    assert [event.position.ordinal for event in events] == list(range(2_500))


async def test_a_reader_goes_on_over_months_that_are_gone_and_other_clusters(
    log: PostgresEventLog, journal: PostgresJournal, tables: Tables, audit_database: AuditDatabase
):
    last_month = datetime.now(UTC).replace(day=1) - timedelta(days=1)
    milliseconds = int(last_month.timestamp() * 1000)
    old = replace(
        request_of("old"),
        alteration_id=str(UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62 | 1)),
    )
    await intend(journal, old)
    await intend(journal, replace(request_of("other"), cluster_id="another"))
    await intend(journal, request_of("new"))
    assert await names(log) == [("intent", "old"), ("intent", "new")]
    month = last_month.strftime("y%Ym%m")
    for table in ("audit_event", "audit_entity"):
        run_as(audit_database.owner_url, f"alter table {table} detach partition {table}_{month}")
    assert await names(log) == [("intent", "new")]
    assert await log.position_of(CLUSTER, f"{old.alteration_id}/0/0") is None


async def test_a_time_is_before_every_event_of_what_began_then_or_later(
    log: PostgresEventLog, journal: PostgresJournal
):
    begun = datetime.now(UTC)
    await intend(journal, request_of("a"))
    (event,) = [event async for event in follow(log)]
    assert (await log.position_at(CLUSTER, begun)) < event.position
    assert (await log.position_at(CLUSTER, begun + timedelta(days=1))) >= event.position
    assert (await log.position_at(CLUSTER, datetime(1, 1, 1, tzinfo=UTC))) < event.position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "//",
        "a/b/c",
        "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/0/0",
        "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/0/0/0",
        "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/-1/0",
        "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/99999999999/0",
        "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/40000/0",
        "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/٣/0",
        "ffffffff-ffff-7fff-bfff-ffffffffffff/0/0",
        "\x00/0/0",
    ],
)
async def test_an_id_that_is_made_up_is_no_position(log: PostgresEventLog, text: str):
    assert await log.position_of(CLUSTER, text) is None


MANY = """
    insert into audit_event (received_at, alteration_id, seq, event_type, at, occurred_at,
      cluster_id, principal, action, documents_hash, payload, leaf_hash)
    select now(), gen_random_uuid(), 0, 'intent', now(), now(), 'many', 'User:a', 'alter',
      hash, '{}', sha256('\\x00'::bytea || timestamptz_send(now()) || timestamptz_send(now())
        || hash || '{}')
    from generate_series(1, 20000), (select sha256('') as hash)
"""


async def test_catching_up_with_a_long_log_is_a_range_of_an_index(
    journal: PostgresJournal, audit_database: AuditDatabase, log: PostgresEventLog
):
    run_as(audit_database.owner_url, MANY, "analyze audit_event, audit_entity")
    await intend(journal, request_of("last"))
    values = {
        "cluster_id": "many",
        "event": 9_000,
        "ordinal": 0,
        "up_to": 10_000,
        "limit": 1000,
        "numbers": 1001,
    }
    with psycopg.connect(audit_database.owner_url) as connection:
        connection.execute("set enable_hashjoin = off")
        plan = "\n".join(
            row[0] for row in psycopg.ClientCursor(connection).execute(f"explain {PAGE}", values)
        )
    assert "log_position_idx" in plan
    month = datetime.now(UTC).strftime("y%Ym%m")
    assert f"Seq Scan on audit_event_{month}" not in plan, plan
    assert await names(log) == [("intent", "last")]


async def test_one_process_produces_until_it_gives_up_or_is_silent(
    database: Database, tables: Tables
):
    positions = PostgresTopicPositions(database)
    here = LogPosition(7, 3)
    assert await positions.claim(CLUSTER, "topic", "a") == BEGINNING
    assert await positions.claim(CLUSTER, "topic", "b") is None
    assert await positions.claim(CLUSTER, "other", "b") == BEGINNING
    assert await positions.move(CLUSTER, "topic", "a", here)
    assert not await positions.move(CLUSTER, "topic", "b", LogPosition(9, 0))
    await positions.give_back("topic", "b")
    assert await positions.claim(CLUSTER, "topic", "b") is None
    await positions.give_back("topic", "a")
    assert await positions.claim(CLUSTER, "topic", "b") == here
    tables.run("update events_topic set owned_until = now() - interval '1 second'")
    assert await positions.claim(CLUSTER, "topic", "c") == here
    assert not await positions.move(CLUSTER, "topic", "b", LogPosition(9, 0))


async def test_the_backlog_is_what_the_topic_does_not_have(
    journal: PostgresJournal, database: Database, log: PostgresEventLog
):
    positions = PostgresTopicPositions(database)
    assert await positions.backlog(CLUSTER, "topic") == (0, 0)
    for user in "abc":
        await intend(journal, request_of(user))
    missing = await positions.backlog(CLUSTER, "topic")
    assert missing.events == 3
    assert 0 < missing.oldest_s < DEADLINE_S
    second = [event async for event in follow(log)][1]
    await positions.claim(CLUSTER, "topic", "a")
    await positions.move(CLUSTER, "topic", "a", second.position)
    assert (await positions.backlog(CLUSTER, "topic")).events == 1
