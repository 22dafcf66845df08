"""Many who take the same entities at the same time."""

import asyncio
import random
from collections import Counter

import psycopg

from app.domain.alterations import Outcome
from app.domain.errors import EntityBusyError
from app.postgres.audit_log import PostgresJournal
from app.postgres.entity_locks import entity_hash
from app.postgres.pool import Database
from app.service.ports.audit_log import AuditQuery
from tests.integration.postgres.calls import run_as, until_somebody_waits
from tests.integration.postgres.slots import AFTER, Tables, concluded, request_of
from tests.integration.postgres.taking import INSERT, holder_of, take
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase, audit_entity, audit_request

DEFINITE = (Outcome.APPLIED, Outcome.REFUSED, Outcome.NOT_APPLIED, Outcome.NOT_SENT)
USERS = [f"user-{number}" for number in range(12)]


async def test_writers_that_overlap_never_share_an_entity_and_never_block_each_other_for_good(
    audit_database: AuditDatabase, tables: Tables
):
    notice_deadlocks = f"alter database {audit_database.name} set deadlock_timeout = '10ms'"
    run_as(audit_database.superuser_url, notice_deadlocks)
    databases = [Database(audit_database.service_url, patience=PATIENT) for _ in range(3)]
    holding: Counter[str] = Counter()
    done, busy = 0, 0

    async def write(number: int) -> None:
        nonlocal done, busy
        journal = PostgresJournal(databases[number % len(databases)])
        chance = random.Random(number)
        for _ in range(10):
            users = chance.sample(USERS, chance.randint(1, 5))
            request = request_of(*users)
            try:
                await take(journal, request)
            except EntityBusyError:
                busy += 1
                continue
            holding.update(users)
            assert {holding[user] for user in users} == {1}
            await asyncio.sleep(0)
            holding.subtract(users)
            await journal.record_conclusion(concluded(request, chance.choice(DEFINITE)))
            done += 1

    await asyncio.gather(*(write(number) for number in range(30)))
    for database in databases:
        await database.close()
    await until_disconnected(audit_database)
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert tables.run(deadlocks)[0].deadlocks == 0
    assert done + busy == 300
    assert done > 30
    assert busy > 0
    assert tables.count("entity_slot") == 0


async def until_disconnected(audit_database: AuditDatabase) -> None:
    query = (
        "select count(*) from pg_stat_activity where usename = 'quotas_service' "
        "and datname = current_database()"
    )
    async with asyncio.timeout(30):
        with psycopg.connect(audit_database.superuser_url, autocommit=True) as connection:
            while connection.execute(query).fetchone() != (0,):
                await asyncio.sleep(0.02)


async def test_who_waits_in_a_circle_is_told_that_an_entity_is_busy(
    audit_database: AuditDatabase,
):
    request = request_of("alice", "bob")
    first, last = sorted(entity_hash(entity.alteration.entity) for entity in request.entities)
    notice_deadlocks = f"alter database {audit_database.name} set deadlock_timeout = "
    run_as(audit_database.superuser_url, f"{notice_deadlocks} '10s'")
    with psycopg.connect(audit_database.service_url) as other:
        other.execute(INSERT, (request.cluster_id, last))
        run_as(audit_database.superuser_url, f"{notice_deadlocks} '50ms'")
        database = Database(audit_database.service_url, patience=PATIENT)
        waiting = asyncio.create_task(take(PostgresJournal(database), request))
        await until_somebody_waits(audit_database)
        closing_the_circle = asyncio.to_thread(other.execute, INSERT, (request.cluster_id, first))
        results = await asyncio.gather(waiting, closing_the_circle, return_exceptions=True)
        await database.close()
    assert isinstance(results[0], EntityBusyError)
    assert results[0].retry == "safe"


async def test_the_times_of_one_entity_are_in_the_order_in_which_it_was_altered(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    databases = [Database(audit_database.service_url, patience=PATIENT) for _ in range(2)]
    applied: list[str] = []

    async def write(number: int) -> None:
        journal = PostgresJournal(databases[number % 2])
        while len(applied) < 100:
            request = request_of("alice")
            try:
                await take(journal, request)
            except EntityBusyError:
                continue
            applied.append(request.alteration_id)
            await journal.record_conclusion(concluded(request))

    await asyncio.gather(*(write(number) for number in range(6)))
    for database in databases:
        await database.close()
    page = await journal.audit_rows(AuditQuery(limit=1000))
    assert [row.alteration_id for row in reversed(page.rows)] == applied
    assert len({row.at for row in page.rows}) == len(applied)


async def test_ten_thousand_slots_are_taken_and_freed_at_once(
    journal: PostgresJournal, tables: Tables
):
    entities = [audit_entity(ordinal, {"user": f"u{ordinal}"}) for ordinal in range(10_000)]
    first, second = audit_request(*entities), audit_request(*entities)
    await take(journal, first)
    assert await holder_of(journal, request_of("u9999")) == first.alteration_id
    assert await holder_of(journal, second) == first.alteration_id
    await journal.record_conclusion(concluded(first))
    known = (await take(journal, second)).known
    assert len(known) == 10_000
    assert {tuple(state.values.items()) for state in known.values()} == {tuple(AFTER.items())}
    await journal.record_conclusion(concluded(second, Outcome.UNKNOWN, None))
    assert {slot.state for slot in tables.slots(second).values()} == {"quarantined"}
