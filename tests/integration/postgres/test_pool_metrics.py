import asyncio

from app.postgres.audit_log import PostgresJournal
from app.postgres.connect import WRITING
from app.postgres.pool import Database, Lease
from tests.testkit.fake_metrics import CountedDependencies
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase

IDLE = {"writing": 0, "recovering": 0, "querying": 0, "denying": 0, "leading": 0}


async def test_who_waits_for_a_connection_and_which_are_at_work_is_counted(
    audit_database: AuditDatabase,
):
    counted = CountedDependencies()
    database = Database(audit_database.service_url, counted, PATIENT)
    inside, go = asyncio.Semaphore(0), asyncio.Event()

    async def work(_: Lease) -> None:
        inside.release()
        await go.wait()

    async with asyncio.timeout(30):
        assert database.in_use() == IDLE
        size = WRITING.size
        working = [
            asyncio.create_task(database.writing.run(work, within_s=30)) for _ in range(size + 1)
        ]
        for _ in range(size):
            await inside.acquire()
        assert database.in_use() == {**IDLE, "writing": size}
        assert counted.counts == {"writing": size}
        go.set()
        await asyncio.gather(*working)
        await PostgresJournal(database).alteration("none")
        assert database.in_use() == IDLE
    assert counted.counts == {"writing": size + 1}
    assert len(counted.seconds) == size + 1
    assert all(seconds >= 0 for seconds in counted.seconds)
    await database.close()
