"""A commit that was sent and not answered: in doubt, and said to be."""

from app.domain.alterations import Outcome
from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from tests.integration.postgres.calls import assert_unavailable, conclusion, intent
from tests.integration.postgres.commit_cutter import CommitCutter
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import AuditDatabase, intend


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
