"""What is joined with the slots is found by hash or index, whatever Postgres believes there is."""

import pytest
from sqlalchemy import text

from app.domain.alterations import AlterationResult, Outcome
from app.postgres import findings
from app.postgres.closing import Ended, close_slots
from app.postgres.copying import MANY
from app.postgres.database import Database
from app.postgres.joining import joined_by_hash
from app.postgres.journal import PostgresJournal
from app.postgres.later_events import by_column
from app.postgres.leases import Lease
from app.postgres.shared_conclusions import conclude_together
from app.service.audit_records import AuditConclusion, AuditRequest
from tests.integration.postgres.calls import run_as
from tests.integration.postgres.slots import concluded
from tests.support.postgres import AuditDatabase, audit_entity, audit_request, intend

SCANS = """
    select sum(seq_scan) from pg_stat_xact_user_tables
    where relname = 'entity_slot' or relname like 'audit\\_event%'
    """


def request_of(prefix: str) -> AuditRequest:
    return audit_request(*(audit_entity(n, {"user": f"{prefix}-{n}"}) for n in range(MANY)))


def results_of(request: AuditRequest) -> dict[int, AlterationResult]:
    return {
        one.ordinal: AlterationResult(
            one.alteration.entity, Outcome.APPLIED, changed=True, before={}, after={"x": 1.0}
        )
        for one in request.entities
    }


@pytest.fixture
async def seemingly_empty(journal: PostgresJournal, audit_database: AuditDatabase) -> AuditRequest:
    """A request whose slots Postgres does not know of: when it last looked there were none."""
    for prefix in ("first", "second"):
        request = request_of(prefix)
        await intend(journal, request)
        await journal.record_conclusion(AuditConclusion(request.alteration_id, results_of(request)))
        run_as(audit_database.superuser_url, "analyze entity_slot", "analyze audit_event")
    await intend(journal, request := request_of("third"))
    return request


async def plan_of(request: AuditRequest, number: int, lease: Lease) -> str:
    """Return how the slots would be held, where so many rows are told."""
    places = [(request.alteration_id, one.ordinal) for one in request.entities]
    async with joined_by_hash(number, lease):
        explain = text(f"explain {findings._HOLD.text}")
        return "\n".join((await lease.connection.scalars(explain, by_column(places))).all())


async def settings(lease: Lease) -> list[str]:
    names = ("enable_hashjoin", "enable_nestloop")
    return [
        str((await (await lease.driver.execute(f"show {name}")).fetchall())[0][0]) for name in names
    ]


async def test_many_slots_are_held_by_hash(database: Database, seemingly_empty: AuditRequest):
    async def look(lease: Lease) -> tuple[str, str, list[str]]:
        few = await plan_of(seemingly_empty, MANY - 1, lease)
        return few, await plan_of(seemingly_empty, MANY, lease), await settings(lease)

    few, many, after = await database.writing.run(look)
    assert "Nested Loop" in few
    assert "Hash Join" in many
    assert "Nested Loop" not in many
    assert after == ["off", "on"]


async def test_slots_are_closed_by_index(database: Database, seemingly_empty: AuditRequest):
    ended = Ended(seemingly_empty.alteration_id, results_of(seemingly_empty))

    async def look(lease: Lease) -> tuple[int | None, int | None]:
        before = await lease.connection.scalar(text(SCANS))
        await close_slots([ended], lease)
        return before, await lease.connection.scalar(text(SCANS))

    before, after = await database.writing.run(look)
    assert before == after == 0


async def test_outcomes_find_their_intents_by_index(
    database: Database, journal: PostgresJournal, seemingly_empty: AuditRequest
):
    request = audit_request(audit_entity(0, {"user": "one"}))
    await intend(journal, request)
    unsent = concluded(request, Outcome.NOT_SENT, None)

    async def look(lease: Lease) -> int | None:
        await conclude_together([unsent], lease)
        return await lease.connection.scalar(text(SCANS))

    assert await database.writing.run(look) == 0
