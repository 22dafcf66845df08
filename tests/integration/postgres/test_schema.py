"""Migrations, what is wrong with a schema, the upkeep of its tables, and connections at work."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect

from app.domain.errors import NotSentError
from app.localdev.postgres import LocalPostgres
from app.postgres.audit_log import PostgresJournal
from app.postgres.connect import WRITING
from app.postgres.migrate import MigrationError, alembic_config, migrate, migrations_folder
from app.postgres.pool import Database, Lease
from app.postgres.schema import (
    LOG_SEQUENCE,
    SCHEMA_REVISION,
    WORKING_TABLES,
    audit_entity,
    audit_event,
    ensure_partitions,
    keep_house,
    months_ahead,
    schema_problem,
)
from tests.integration.postgres.calls import Tables, run_as
from tests.testkit.counted_metrics import CountedDatabase
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase

GRANTED = "The role quotas_service may read the audit log and add to it, and keep locks and keys."


def objects(url: str) -> set[str]:
    query = """
        select relname::text from pg_class where relnamespace = 'public'::regnamespace
        union select proname::text from pg_proc where pronamespace = 'public'::regnamespace
        union select tgname || ' of ' || tgrelid::regclass from pg_trigger
    """
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute(query)}


def open_connection(url: str) -> Connection:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    return engine.connect()


def test_a_migration_says_what_it_did_and_does_nothing_twice(empty_database: AuditDatabase):
    first = migrate(empty_database.owner_url, empty_database.service_url)
    made = objects(empty_database.owner_url)
    again = migrate(empty_database.owner_url, empty_database.service_url)
    assert first == [f"Migrated from empty to {SCHEMA_REVISION}.", GRANTED]
    assert again == [f"The schema is at {SCHEMA_REVISION} already.", GRANTED]
    assert objects(empty_database.owner_url) == made


def test_every_migration_can_be_undone_and_done_again(audit_database: AuditDatabase):
    made = objects(audit_database.owner_url)
    connection = open_connection(audit_database.owner_url)
    with connection, connection.begin():
        command.downgrade(alembic_config(connection), "base")
    connection.engine.dispose()
    assert objects(audit_database.owner_url) == {"alembic_version", "alembic_version_pkc"}
    migrate(audit_database.owner_url, audit_database.service_url)
    assert objects(audit_database.owner_url) == made


def test_the_service_expects_the_newest_migration(audit_database: AuditDatabase):
    connection = open_connection(audit_database.owner_url)
    with connection:
        scripts = ScriptDirectory.from_config(alembic_config(connection))
        for table in (audit_event, audit_entity):
            columns = {column["name"] for column in inspect(connection).get_columns(table.name)}
            assert columns == {column.name for column in table.columns}
    connection.engine.dispose()
    assert scripts.get_heads() == [SCHEMA_REVISION]


def test_migrations_that_run_at_once_take_turns(empty_database: AuditDatabase):
    with ThreadPoolExecutor(4) as workers:
        tasks = [
            workers.submit(migrate, empty_database.owner_url, empty_database.service_url)
            for _ in range(4)
        ]
    firsts = sorted(task.result()[0] for task in tasks)
    assert firsts == [
        f"Migrated from empty to {SCHEMA_REVISION}.",
        *[f"The schema is at {SCHEMA_REVISION} already."] * 3,
    ]


def test_partitions_reach_from_the_month_before_to_three_months_ahead(
    audit_database: AuditDatabase,
):
    first = datetime.now(UTC).replace(day=1) - timedelta(days=1)
    months = {f"{first:%Y}m{first:%m}"}
    for _ in range(4):
        first = first.replace(day=1) + timedelta(days=32)
        months.add(f"{first:%Y}m{first:%m}")
    query = "select relid::regclass::text from pg_partition_tree(%s) where isleaf"
    with psycopg.connect(audit_database.owner_url) as connection:
        for log in ("audit_event", "audit_entity"):
            made = {row[0] for row in connection.execute(query, [log])}
            assert made == {f"{log}_y{month}" for month in months}


def test_the_service_may_make_later_partitions_and_they_are_closed_to_it(
    audit_database: AuditDatabase,
):
    with psycopg.connect(audit_database.service_url) as connection:
        made = connection.execute("select ensure_audit_partitions(0, 12)").fetchone()
        again = connection.execute("select ensure_audit_partitions(0, 12)").fetchone()
    assert (made, again) == ((18,), (0,))
    query = """
        select count(*) filter (where isleaf),
          count(*) filter (where isleaf and has_table_privilege('quotas_service', relid,
            'select, insert, update, delete, truncate, references, trigger')),
          count(*) filter (where pg_get_userbyid(relowner) <> 'quotas_owner')
        from pg_partition_tree(%s) join pg_class on oid = relid
    """
    with psycopg.connect(audit_database.owner_url) as connection:
        for log in ("audit_event", "audit_entity"):
            assert connection.execute(query, [log]).fetchone() == (14, 0, 0)


def test_one_role_for_everything_works_with_a_warning(empty_database: AuditDatabase):
    _, warning = migrate(empty_database.owner_url, empty_database.owner_url)
    assert warning.startswith("Warning: ")
    assert "quotas_owner" in warning


def test_a_service_role_that_does_not_exist_stops_the_migration(empty_database: AuditDatabase):
    nobody = empty_database.service_url.replace("quotas_service", "quotas_nobody")
    with pytest.raises(MigrationError, match="quotas_nobody"):
        migrate(empty_database.owner_url, nobody)
    assert "audit_event" not in objects(empty_database.owner_url)


def test_a_role_that_may_not_create_tables_stops_the_migration(empty_database: AuditDatabase):
    with pytest.raises(MigrationError, match="permission denied"):
        migrate(empty_database.service_url, empty_database.service_url)


def test_a_newer_schema_is_not_touched(audit_database: AuditDatabase):
    with psycopg.connect(audit_database.owner_url) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    with pytest.raises(MigrationError, match="9999"):
        migrate(audit_database.owner_url, audit_database.service_url)


def test_a_database_that_cannot_hold_every_name_is_refused(empty_database: AuditDatabase):
    with psycopg.connect(empty_database.superuser_url, autocommit=True) as connection:
        connection.execute(
            "create database latin owner quotas_owner template template0 encoding 'SQL_ASCII' "
            "locale_provider libc locale 'C'"
        )
    latin = empty_database.owner_url.replace(empty_database.name, "latin")
    with pytest.raises(MigrationError, match="SQL_ASCII"):
        migrate(latin, latin)


def test_an_unreachable_database_is_one_sentence_without_a_password():
    with pytest.raises(MigrationError) as raised:
        migrate("postgresql://owner:secret@127.0.0.1:1/quotas", "postgresql://127.0.0.1:1/quotas")
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_migrations_are_found_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert (migrations_folder() / "versions").is_dir()


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
        f"drop table {', '.join(WORKING_TABLES)} cascade",
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
        (f"revoke usage on sequence {LOG_SEQUENCE} from quotas_service", "may not read and add"),
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
    counted = CountedDatabase()
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
        assert counted.counts == {"db_pool_wait_seconds writing": size}
        go.set()
        await asyncio.gather(*working)
        await PostgresJournal(database).alteration("none")
        assert database.in_use() == IDLE
    assert counted.counts == {"db_pool_wait_seconds writing": size + 1}
    await database.close()
