"""What is joined with the slots is joined by hash, whatever Postgres believes there to be."""

from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text

from app.domain.alterations import AlterationResult, Outcome
from app.postgres import recovery
from app.postgres.audit_log import PostgresJournal
from app.postgres.bulk import MANY, joined_by_hash
from app.postgres.follow_up_events import by_column
from app.postgres.outcomes import Ended, closing, conclude_together
from app.postgres.pool import Database, Lease
from app.service.ports.audit_log import AuditConclusion, AuditRequest
from tests.integration.postgres.calls import run_as
from tests.integration.postgres.slots import concluded
from tests.testkit.postgres import AuditDatabase, audit_entity, audit_request, intend

SCANS = """
    select sum(seq_scan) from pg_stat_xact_user_tables
    where relname = 'entity_slot' or relname like 'audit\\_event%'
    """


def request_of(prefix: str) -> AuditRequest:
    return audit_request(*(audit_entity(n, {"user": f"{prefix}-{n}"}) for n in range(MANY)))


def results_of(request: AuditRequest) -> dict[int, AlterationResult]:
    return {
        entity.ordinal: AlterationResult(
            entity.alteration.entity, Outcome.APPLIED, changed=True, before={}, after={"x": 1.0}
        )
        for entity in request.entities
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


async def holding(request: AuditRequest, lease: Lease) -> str:
    """Return how the slots would be held."""
    places = [(request.alteration_id, entity.ordinal) for entity in request.entities]
    explain = text(f"explain {recovery._HOLD.text}")
    return "\n".join((await lease.connection.scalars(explain, by_column(places))).all())


async def closed(request: AuditRequest, lease: Lease) -> str:
    """Return how the first statement in the function would close the slots."""
    source = await lease.connection.scalar(
        text("select prosrc from pg_proc where proname = 'close_slots'")
    )
    assert isinstance(source, str)
    statement = source.partition("begin")[2].partition(";")[0].strip()
    for name in ("definite", "unknown"):
        statement = statement.replace(f"recordset({name})", f"recordset(%({name})s::json)")
    statement = statement.replace("any(ids)", "any(%(ids)s)")
    parameters = closing([Ended(request.alteration_id, results_of(request))])
    explained = await lease.driver.execute(f"explain {statement}", parameters)
    return "\n".join(str(line) for (line,) in await explained.fetchall())


async def settings(lease: Lease) -> list[str]:
    names = ("enable_hashjoin", "enable_nestloop")
    return [
        str((await (await lease.driver.execute(f"show {name}")).fetchall())[0][0]) for name in names
    ]


@pytest.mark.parametrize("planned", [holding, closed])
async def test_many_slots_are_joined_by_hash(
    database: Database,
    seemingly_empty: AuditRequest,
    planned: Callable[[AuditRequest, Lease], Awaitable[str]],
):
    async def look(lease: Lease) -> tuple[list[str], list[str]]:
        plans = []
        for number in (MANY - 1, MANY):
            async with joined_by_hash(number, lease):
                plans.append(await planned(seemingly_empty, lease))
        return plans, await settings(lease)

    (few, many), after = await database.writing.run(look)
    assert "Nested Loop" in few
    assert "Hash Join" in many
    assert "Nested Loop" not in many
    assert after == ["off", "on"]


@pytest.mark.usefixtures("seemingly_empty")
async def test_outcomes_find_slots_and_intents_by_index(
    database: Database, journal: PostgresJournal
):
    request = audit_request(audit_entity(0, {"user": "one"}))
    await intend(journal, request)
    unsent = concluded(request, Outcome.NOT_SENT, None)

    async def look(lease: Lease) -> tuple[int | None, int | None]:
        before = await lease.connection.scalar(text(SCANS))
        await conclude_together([unsent], lease)
        return before, await lease.connection.scalar(text(SCANS))

    before, after = await database.writing.run(look)
    assert before == after
