"""A call that Postgres does not answer is cut off, also where no file can be opened any more."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from app.domain.alterations import Outcome
from app.domain.errors import NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.errors import CommitInDoubtError
from app.postgres.pool import Database, Lease
from tests.integration.postgres.calls import assert_unavailable, conclusion, intent
from tests.integration.postgres.commit_cutter import CommitCutter
from tests.testkit.kafka import until
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import AuditDatabase, intend


@contextmanager
def no_file_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(first_free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("commits", [False, True])
async def test_a_silent_call_is_cut_off_where_no_file_can_be_opened(
    database: Database, commits: bool
):
    async def hang(lease: Lease) -> None:
        lease.commits = commits
        await lease.connection.execute(text("select pg_sleep(60)"))

    async def select_1(lease: Lease) -> object:
        return await lease.connection.scalar(text("select 1"))

    pool = database.writing
    assert await pool.run(select_1) == 1
    with no_file_left(), pytest.raises(CommitInDoubtError if commits else NotSentError):
        await pool.run(hang, within_s=0.3)
    await until(lambda: pool.in_use == 0)
    assert await pool.run(select_1) == 1


async def test_an_intent_whose_commit_is_not_answered_is_an_error_that_names_it(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    async with CommitCutter(audit_database.service_url, forwards=True) as cutter:
        behind = Database(cutter.url, patience=PROMPT)
        (error,) = await assert_unavailable(intend(PostgresJournal(behind), request))
        await behind.close()
    assert error.alteration_id == request.alteration_id
    record = await journal.alteration(request.alteration_id)
    assert record is not None
    assert not record.concluded
    await journal.record_conclusion(conclusion(request))
    record = await journal.alteration(request.alteration_id)
    assert record is not None
    assert record.results[0].outcome is Outcome.NOT_SENT


async def test_an_intent_whose_commit_was_swallowed_is_not_in_the_log(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    async with CommitCutter(audit_database.service_url, forwards=False) as cutter:
        behind = Database(cutter.url, patience=PROMPT)
        (error,) = await assert_unavailable(intend(PostgresJournal(behind), request))
        await behind.close()
    assert error.alteration_id == request.alteration_id
    assert await journal.alteration(request.alteration_id) is None


async def test_a_conclusion_whose_commit_is_not_answered_can_be_repeated(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    await intend(journal, request)
    async with CommitCutter(audit_database.service_url, forwards=True) as cutter:
        behind = Database(cutter.url, patience=PROMPT)
        await assert_unavailable(PostgresJournal(behind).record_conclusion(conclusion(request)))
        await behind.close()
    await journal.record_conclusion(conclusion(request))
    record = await journal.alteration(request.alteration_id)
    assert record is not None
    assert record.concluded
