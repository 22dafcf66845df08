"""Events find what they belong to by index and by hash, whatever Postgres believes there to be."""

import re

import psycopg
import pytest
from sqlalchemy import text

from app.domain.alterations import Outcome
from app.postgres.audit_log import PostgresJournal
from app.postgres.log_writer import MAX_BATCH_ROWS, write_outcomes
from app.postgres.pool import Database, Lease
from app.service.ports.audit_log import AuditRequest
from benchmarks.log_growth import planned
from tests.integration.postgres.calls import concluded, request_of, run_as
from tests.testkit.postgres import AuditDatabase, intend

SCAN = re.compile(r"(?:Seq Scan|Scan using \w+) on (?:audit|quota|idempotency)\w*.*\n(?=(.*))")
SCANS = """
    select sum(seq_scan) from pg_stat_xact_user_tables
    where relname = 'quota_entity' or relname like 'audit\\_e%'
    """


def users(prefix: str) -> list[str]:
    return [f"{prefix}-{n}" for n in range(MAX_BATCH_ROWS)]


@pytest.fixture
async def seemingly_empty(journal: PostgresJournal, audit_database: AuditDatabase) -> AuditRequest:
    """A request whose locks Postgres does not know of: when it last looked there were none."""
    for prefix in ("first", "second"):
        request = request_of(*users(prefix))
        await intend(journal, request)
        await journal.record_conclusion(concluded(request))
        run_as(audit_database.superuser_url, "analyze")
    await intend(journal, request := request_of(*users("third")))
    return request


async def test_thousands_are_joined_by_hash_in_sessions_that_avoid_it(database: Database):
    """Compared all with all, 10,000 took 10 s."""

    async def settings(lease: Lease) -> tuple[list[list[str]], str]:
        query = text(
            "select proconfig from pg_proc where proname in ('append_events', 'record_intents')"
        )
        found = [list(item) for item in await lease.connection.scalars(query)]
        return found, str(await lease.connection.scalar(text("show enable_hashjoin")))

    found, of_session = await database.writing.run(settings)
    assert of_session == "off"
    assert len(found) == 2
    for result in found:
        assert {"enable_hashjoin=on", "enable_nestloop=off", "enable_seqscan=off"} <= set(result)


@pytest.mark.usefixtures("seemingly_empty")
async def test_outcomes_find_locks_and_intents_by_index(
    database: Database, journal: PostgresJournal
):
    request = request_of("one")
    await intend(journal, request)
    unsent = concluded(request, Outcome.NOT_SENT, None)

    async def look(lease: Lease) -> tuple[int | None, int | None]:
        before = await lease.connection.scalar(text(SCANS))
        await write_outcomes([unsent], lease)
        return before, await lease.connection.scalar(text(SCANS))

    before, after = await database.writing.run(look)
    assert before == after


def test_no_statement_that_writes_the_log_reads_a_whole_table(audit_database: AuditDatabase):
    with psycopg.connect(audit_database.superuser_url, autocommit=True) as postgres:
        plans = [plan for _, plan in planned(postgres)]
    following = [match[1].strip() for plan in plans for match in SCAN.finditer(plan)]
    assert len(following) > 20
    assert [line for line in following if not line.startswith("Index Cond:")] == []
