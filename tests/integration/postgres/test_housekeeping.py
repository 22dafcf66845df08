import asyncio

from app.postgres.audit_log import PostgresJournal
from app.postgres.connect import WRITING
from app.postgres.pool import Database, Lease
from app.postgres.schema import keep_house, months_ahead
from tests.integration.postgres.calls import Tables
from tests.testkit.fake_metrics import CountedDependencies
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase

EXPIRED = (
    "insert into idempotency select sha256(n::text::bytea), sha256('f'), gen_random_uuid(), now() "
    "from generate_series(1, 2500) as n"
)
AHEAD = """
    select name from (
      select relid::regclass::text as name from pg_partition_tree('audit_event') where isleaf
    ) as partition
    where name > to_char(now() at time zone 'UTC', '"audit_event_y"YYYY"m"MM')
"""


async def test_partitions_are_made_ahead_and_expired_keys_are_removed(
    database: Database, tables: Tables
):
    for partition in tables.run(AHEAD):
        tables.run(f"drop table {partition.name}")
    assert tables.run(AHEAD) == []
    tables.run(EXPIRED)
    made = await asyncio.gather(*(keep_house(database) for _ in range(3)))
    assert sum(made) == 3
    assert len(tables.run(AHEAD)) == 3
    assert await months_ahead(database) == 3
    assert tables.count("idempotency") == 0


async def test_months_are_counted_up_to_the_first_gap(database: Database, tables: Tables):
    first, second, _ = sorted(partition.name for partition in tables.run(AHEAD))
    tables.run(f"drop table {second}")
    assert await months_ahead(database) == 1
    tables.run(f"drop table {first}")
    assert await months_ahead(database) == 0
    present = first_of_all(tables)
    tables.run(f"drop table {present}")
    assert await months_ahead(database) == -1


def first_of_all(tables: Tables) -> str:
    query = """select to_char(now() at time zone 'UTC', '"audit_event_y"YYYY"m"MM') as name"""
    return str(tables.run(query)[0].name)


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
