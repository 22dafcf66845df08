from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect

from app.postgres.migrate import MigrationError, alembic_config, migrate, migrations_folder
from app.postgres.schema import SCHEMA_REVISION, audit_entity, audit_event
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
