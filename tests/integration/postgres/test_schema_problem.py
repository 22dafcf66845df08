"""What is wrong with a schema, the upkeep of its tables, and which connections are at work."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.errors import NotSentError
from app.localdev.postgres import LocalPostgres
from app.postgres.audit_log import PostgresJournal
from app.postgres.connect import WRITING
from app.postgres.migrate import migrate
from app.postgres.pool import Database, Lease
from app.postgres.schema import (
    SCHEMA_REVISION,
    WORKING_TABLES,
    ensure_partitions,
    keep_house,
    months_ahead,
    schema_problem,
)
from tests.integration.postgres.calls import Tables, run_as
from tests.testkit.fake_metrics import CountedDependencies
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase

NOW = datetime.now(UTC)
PARTITION = f"audit_event_y{NOW:%Ym%m}"
NEXT_PARTITION = f"audit_event_y{NOW.replace(day=1) + timedelta(days=32):%Ym%m}"


async def problem_of(url: str) -> str | None:
    database = Database(url, patience=PATIENT)
    try:
        return await schema_problem(database)
    finally:
        await database.close()


async def test_a_migrated_database_has_no_problem(audit_database: AuditDatabase):
    assert await problem_of(audit_database.service_url) is None


async def test_a_database_of_the_version_before_is_named(audit_database: AuditDatabase):
    run_as(
        audit_database.owner_url,
        "update alembic_version set version_num = '0000'",
        f"drop table {', '.join(WORKING_TABLES)}",
    )
    assert f"older than {SCHEMA_REVISION}" in (await problem_of(audit_database.service_url) or "")


async def test_a_database_of_one_role_has_no_problem(empty_database: AuditDatabase):
    migrate(empty_database.owner_url, empty_database.owner_url)
    assert await problem_of(empty_database.owner_url) is None


async def test_an_empty_database_has_no_audit_log(empty_database: AuditDatabase):
    problem = await problem_of(empty_database.service_url)
    assert problem == "The database has no audit log yet: run `kafka-quota-service migrate`."


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("update alembic_version set version_num = '0000'", f"older than {SCHEMA_REVISION}"),
        ("update alembic_version set version_num = '9999'", f"newer than {SCHEMA_REVISION}"),
        ("delete from alembic_version", f"older than {SCHEMA_REVISION}"),
        ("revoke insert on audit_event from quotas_service", "may not read and add"),
        ("revoke select on audit_event from quotas_service", "may not read and add"),
        ("revoke select on alembic_version from quotas_service", "may not read and add"),
        ("grant update on audit_event to quotas_service", "could change or remove"),
        ("grant delete on audit_event to public", "could change or remove"),
        ("grant truncate on audit_event to quotas_service", "could change or remove"),
        ("grant trigger on audit_event to quotas_service", "could change or remove"),
        ("grant update (seq) on audit_event to quotas_service", "could change or remove"),
        ("grant update (verdict) on audit_entity to quotas_service", "could change or remove"),
        ("revoke insert on audit_entity from quotas_service", "may not read and add"),
        ("revoke select on audit_entity_event from quotas_service", "may not read and add"),
        ("alter table audit_entity disable trigger audit_entity_row", "audit_entity lacks"),
        (f"grant delete on {PARTITION} to quotas_service", "could change or remove"),
        (f"grant insert on {PARTITION} to quotas_service", "could change or remove"),
        ("alter table audit_event disable trigger audit_event_row", "audit_event lacks"),
        ("alter table audit_event enable trigger audit_event_truncate", "audit_event lacks"),
        (f"alter table {PARTITION} disable trigger audit_event_row", f"{PARTITION} lacks"),
        (f"alter table {PARTITION} disable trigger audit_event_truncate", f"{PARTITION} lacks"),
        (f"drop trigger audit_event_truncate on {PARTITION}", f"{PARTITION} lacks"),
        (f"drop table {PARTITION}", "no partition for the present month"),
        (f"drop table {NEXT_PARTITION}", "no partition for the next month"),
        (
            f"drop table {NEXT_PARTITION.replace('event', 'entity')}",
            "no partition for the next month",
        ),
        *((f"revoke all on {name} from quotas_service", name) for name in WORKING_TABLES),
        ("revoke delete on idempotency from quotas_service", "may not use the table idempotency"),
        ("revoke update on quota_entity from quotas_service", "may not use the table quota_entity"),
        ("revoke insert on worker from quotas_service", "may not use the table worker"),
        ("drop table idempotency", "may not use the table idempotency"),
        ("revoke insert on authentication_failure from quotas_service", "may not read and add"),
        ("grant delete on authentication_failure to quotas_service", "could change or remove"),
        (
            "drop trigger authentication_failure_row on authentication_failure",
            "authentication_failure lacks",
        ),
        ("drop index audit_entity_one_conclusion", "keeps conclusions unique"),
    ],
)
async def test_a_schema_that_does_not_fit_is_named(
    audit_database: AuditDatabase, change: str, problem: str
):
    run_as(audit_database.owner_url, change)
    assert problem in (await problem_of(audit_database.service_url) or "")


async def test_the_service_makes_the_partitions_that_are_missing(
    audit_database: AuditDatabase, database: Database
):
    run_as(audit_database.owner_url, f"drop table {PARTITION}")
    assert [await ensure_partitions(database) for _ in range(2)] == [1, 0]
    assert await problem_of(audit_database.service_url) is None


async def test_a_role_that_can_become_the_owner_is_a_problem(
    audit_database: AuditDatabase, postgres: LocalPostgres
):
    run_as(postgres.superuser_url, "grant quotas_owner to quotas_service with inherit false")
    try:
        problem = await problem_of(audit_database.service_url)
    finally:
        run_as(postgres.superuser_url, "revoke quotas_owner from quotas_service")
    assert "could change or remove" in (problem or "")


async def test_a_migration_repairs_rights(audit_database: AuditDatabase):
    run_as(
        audit_database.owner_url,
        "grant update, delete on audit_event to quotas_service",
        f"grant insert on {PARTITION} to quotas_service",
        "revoke select on alembic_version from quotas_service",
        f"revoke all on {', '.join(WORKING_TABLES)} from quotas_service",
    )
    migrate(audit_database.owner_url, audit_database.service_url)
    assert await problem_of(audit_database.service_url) is None


async def test_a_database_that_is_down_is_an_error_not_a_problem_of_the_schema():
    with pytest.raises(NotSentError):
        await problem_of("postgresql://quotas_service@127.0.0.1:1/quotas")


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
    tables.run(f"drop table {PARTITION}")
    assert await months_ahead(database) == -1


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
