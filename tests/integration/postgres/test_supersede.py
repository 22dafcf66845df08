import asyncio

import pytest

from app.domain.errors import EntityBusyError
from app.postgres.audit_log import PostgresJournal
from app.service.ports.audit_log import AuditQuery, AuditRequest, Intent
from tests.integration.postgres.calls import Tables, concluded, in_doubt, request_of, stored, take


async def outcomes(journal: PostgresJournal, request: AuditRequest) -> dict[int, str]:
    record = await stored(journal, request)
    return {ordinal: result.outcome.value for ordinal, result in record.results.items()}


async def test_a_superseded_alteration_gives_up_the_entities_of_the_new_one_only(
    journal: PostgresJournal, tables: Tables
):
    old = await in_doubt(journal, "alice", "bob", "carol")
    new = request_of("carol", "dave", "alice")
    await take(journal, new, supersedes=old.alteration_id)
    assert list(tables.locks(old)) == [1]
    assert {lock.quarantined for lock in tables.locks(new).values()} == {False}
    assert list(tables.locks(new)) == [0, 1, 2]
    assert await outcomes(journal, old) == {0: "superseded", 1: "unknown", 2: "superseded"}
    record = await stored(journal, old)
    detail = f"superseded by alteration {new.alteration_id} before it had an outcome"
    assert [detail for _, event, detail in record.history if event == "recovery"] == [
        f"{detail} for {{user=alice}}",
        f"{detail} for {{user=carol}}",
    ]
    page = await journal.audit_rows(AuditQuery(outcome="superseded"))
    assert [row.alteration_id for row in page.rows] == [old.alteration_id] * 2
    assert [row.before for row in page.rows] == [{}, {}]


async def test_what_is_superseded_is_concluded(journal: PostgresJournal, tables: Tables):
    old = await in_doubt(journal, "alice")
    new = request_of("alice")
    await take(journal, new, supersedes=old.alteration_id)
    with pytest.raises(ValueError, match="already"):
        await journal.record_conclusion(concluded(old))
    await journal.record_conclusion(concluded(new))
    assert await outcomes(journal, old) == {0: "superseded"}
    assert await outcomes(journal, new) == {0: "applied"}
    assert str(tables.state(new).changed_by) == new.alteration_id


async def test_what_is_not_in_quarantine_is_not_taken_over(
    journal: PostgresJournal, tables: Tables
):
    held, doubtful = request_of("alice"), await in_doubt(journal, "bob")
    await take(journal, held)
    for supersedes in (held.alteration_id, doubtful.alteration_id, "nonsense", held.request_id):
        with pytest.raises(EntityBusyError) as raised:
            await take(journal, request_of("alice", "bob"), supersedes=supersedes)
        assert raised.value.alteration_id in (held.alteration_id, doubtful.alteration_id)
    with pytest.raises(EntityBusyError):
        await take(journal, request_of("alice"), supersedes=held.alteration_id)
    assert await outcomes(journal, doubtful) == {0: "unknown"}
    assert tables.locked() == 2


async def test_of_two_that_supersede_at_once_one_wins(journal: PostgresJournal, tables: Tables):
    users = [f"user-{number}" for number in range(20)]
    for _ in range(10):
        old = await in_doubt(journal, *users)
        news = [request_of(*users), request_of(*reversed(users))]
        results = await asyncio.gather(
            *(take(journal, new, supersedes=old.alteration_id) for new in news),
            return_exceptions=True,
        )
        won = [new for new, result in zip(news, results, strict=True) if isinstance(result, Intent)]
        (error,) = [result for result in results if isinstance(result, Exception)]
        assert len(won) == 1
        assert isinstance(error, EntityBusyError)
        assert error.alteration_id == won[0].alteration_id
        assert set((await outcomes(journal, old)).values()) == {"superseded"}
        await journal.record_conclusion(concluded(won[0]))
    assert tables.locked() == 0
