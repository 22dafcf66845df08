"""What is joined with the slots is joined by hash, whatever Postgres believes there to be."""

from app.domain.alterations import AlterationResult, Outcome
from app.postgres import closing
from app.postgres.closing import Ended
from app.postgres.copying import MANY
from app.postgres.database import Database
from app.postgres.joining import joined_by_hash
from app.postgres.journal import PostgresJournal
from app.postgres.leases import Lease
from app.service.audit_records import AuditConclusion, AuditRequest
from tests.integration.postgres.calls import run_as
from tests.support.postgres import AuditDatabase, audit_entity, audit_request, intend


def request_of(prefix: str) -> AuditRequest:
    return audit_request(*(audit_entity(n, {"user": f"{prefix}-{n}"}) for n in range(MANY)))


def results_of(request: AuditRequest) -> dict[int, AlterationResult]:
    return {
        one.ordinal: AlterationResult(
            one.alteration.entity, Outcome.APPLIED, changed=True, before={}, after={"x": 1.0}
        )
        for one in request.entities
    }


async def plan_of(ended: Ended, number: int, lease: Lease) -> str:
    """Return how the slots would be closed, where so many rows are told."""
    async with joined_by_hash(number, lease):
        explained = await lease.driver.execute(
            f"explain {closing._CLOSE}", closing.closing([ended])
        )
        return "\n".join(str(line) for (line,) in await explained.fetchall())


async def settings(lease: Lease) -> list[str]:
    names = ("enable_hashjoin", "enable_nestloop")
    return [
        str((await (await lease.driver.execute(f"show {name}")).fetchall())[0][0]) for name in names
    ]


async def test_many_slots_are_closed_by_hash_where_there_seems_to_be_none(
    journal: PostgresJournal, audit_database: AuditDatabase
):
    for prefix in ("first", "second"):
        request = request_of(prefix)
        await intend(journal, request)
        conclusion = AuditConclusion(request.alteration_id, results_of(request))
        await journal.record_conclusion(conclusion)
        run_as(audit_database.superuser_url, "analyze entity_slot")
    ended = Ended(request.alteration_id, results_of(request))
    database = Database(audit_database.service_url)

    async def look(lease: Lease) -> tuple[str, str, list[str]]:
        few = await plan_of(ended, MANY - 1, lease)
        return few, await plan_of(ended, MANY, lease), await settings(lease)

    few, many, after = await database.writing.run(look)
    await database.close()
    assert "Nested Loop" in few
    assert "Hash Join" in many
    assert "Nested Loop" not in many
    assert after == ["off", "on"]
