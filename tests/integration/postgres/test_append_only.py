"""Nobody changes what is logged; refused credentials are counted once each."""

import hashlib

import psycopg
import pytest
from psycopg import sql

from app.postgres.audit_log import PostgresJournal
from app.postgres.schema import LOG_TABLES, LOG_VIEWS, WORKING_TABLES
from tests.testkit.postgres import AuditDatabase, audit_change, audit_request, intend

pytestmark = pytest.mark.usefixtures("one_row")

CHANGING = ("SELECT", "INSERT", "UPDATE", "DELETE")
REFUSED = psycopg.errors.InsufficientPrivilege

PARENT_CHANGES = (
    "update {} set at = now()",
    "update {} set seq = seq",
    "delete from {}",
    "truncate {}",
    "truncate {} cascade",
    "alter table {} disable trigger all",
    "alter table {} disable trigger {log}_row",
    "drop trigger {log}_row on {}",
    "drop table {}",
    "alter table {} add column more text",
    "alter table {} owner to quotas_service",
    "create trigger mine before insert on {} execute function refuse_change_of_audit_event()",
    "create rule mine as on insert to {} do instead nothing",
    "begin; lock table {} in access exclusive mode",
    "insert into {} default values on conflict on constraint {}_pkey do update set seq = 1",
)
PARTITION_CHANGES = (
    *PARENT_CHANGES,
    "select * from {}",
    "insert into {} default values",
    "alter table {log} detach partition {}",
    "copy {} from stdin",
)
OTHER_CHANGES = (
    "set role quotas_owner",
    "set session authorization quotas_owner",
    "set session_replication_role = replica",
    "alter function refuse_change_of_audit_event() rename to other",
    "drop function refuse_change_of_audit_event() cascade",
    "update alembic_version set version_num = '0'",
    "delete from alembic_version",
    "create table audit_event_copy (id int)",
    "alter role quotas_service superuser",
    "alter system set session_replication_role = replica",
)


@pytest.fixture
async def one_row(journal: PostgresJournal):
    await intend(journal, audit_request(audit_change(0, {"user": "alice"})))


def log_tables(url: str) -> list[tuple[str, bool]]:
    query = """
        select relid::regclass::text, isleaf from (values ('audit_event'), ('audit_entity')) as t(n)
        cross join pg_partition_tree(n::regclass)
        """
    with psycopg.connect(url) as connection:
        return list(connection.execute(query))


def error_of(url: str, statement: str, *prepare: str) -> type[Exception] | None:
    with psycopg.connect(url, autocommit=True) as connection:
        for line in prepare:
            connection.execute(line)
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            return type(error)
    return None


def test_the_service_cannot_change_what_is_written(audit_database: AuditDatabase):
    with psycopg.connect(audit_database.service_url) as connection:
        connection.execute("select ensure_audit_partitions(0, 6)")
    found = {}
    for name, is_leaf in log_tables(audit_database.owner_url):
        for change in PARTITION_CHANGES if is_leaf else PARENT_CHANGES:
            statement = change.replace("{}", name).replace("{log}", name.partition("_y2")[0])
            found[statement] = error_of(audit_database.service_url, statement)
    for statement in OTHER_CHANGES:
        found[statement] = error_of(audit_database.service_url, statement)
    assert {key: kind for key, kind in found.items() if kind is not REFUSED} == {}
    assert len(found) > 150


def test_the_catalog_gives_the_service_no_right_on_the_log_beyond_reading_and_adding(
    audit_database: AuditDatabase,
):
    query = """
        select relname, privilege from pg_class
        cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                                'TRIGGER', 'MAINTAIN']) privilege
        where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'S')
          and has_table_privilege('quotas_service', oid, privilege)
    """
    grant = "grant all on audit_event to quotas_service, public with grant option"
    error_of(audit_database.service_url, grant)
    with psycopg.connect(audit_database.owner_url) as connection:
        assert set(connection.execute(query)) == {
            *((log, right) for log in LOG_TABLES for right in ("SELECT", "INSERT")),
            *((view, "SELECT") for view in LOG_VIEWS),
            ("alembic_version", "SELECT"),
            *((table, right) for table in WORKING_TABLES for right in CHANGING),
        }


@pytest.mark.parametrize("replica", [False, True])
@pytest.mark.parametrize("change", ["update {} set at = at", "delete from {}"])
def test_not_even_a_superuser_changes_a_row_unnoticed(
    audit_database: AuditDatabase, change: str, replica: bool
):
    prepare = ["set session_replication_role = replica"] if replica else []
    for log in ("audit_event", "audit_entity"):
        with psycopg.connect(audit_database.owner_url) as connection:
            written = sql.SQL("select tableoid::regclass::text from {} limit 1").format(
                sql.Identifier(log)
            )
            (partition,) = connection.execute(written).fetchone() or ("",)
        for name in (log, partition):
            statement = change.replace("{}", name)
            assert error_of(audit_database.superuser_url, statement, *prepare) is REFUSED, name


def test_no_table_of_the_log_can_be_truncated_by_its_owner(audit_database: AuditDatabase):
    url = audit_database.owner_url
    errors = {name: error_of(url, f"truncate {name}") for name, _ in log_tables(url)}
    assert {name: error for name, error in errors.items() if error is not REFUSED} == {}
    assert len(errors) >= 12


def test_an_event_that_its_hash_does_not_seal_is_refused(audit_database: AuditDatabase):
    insert = sql.SQL(
        "insert into audit_event (received_at, alteration_id, seq, event_type, at, occurred_at, "
        "cluster_id, principal, action, documents_hash, payload, leaf_hash) values (now(), "
        "gen_random_uuid(), 0, 'intent', {}, {}, 'c', 'p', 'alter', {}, {}, {})"
    )
    first, later = "2000-01-01T00:00:00.000001Z", "2000-01-01T00:00:00.000002Z"
    documents, others = hashlib.sha256(b"").digest(), hashlib.sha256(b"{}").digest()
    # RFC 6962, section 2.1: SHA-256 of a zero byte and what is sealed
    whole = b"\0" + b"\0" * 7 + b"\1" + b"\0" * 7 + b"\1" + documents + b"{}"
    sealed = hashlib.sha256(whole).digest()
    with psycopg.connect(audit_database.service_url, autocommit=True) as connection:
        connection.execute(insert.format(first, first, documents, b"{}", sealed))
        for other in (
            (later, first, documents, b"{}"),
            (first, later, documents, b"{}"),
            (first, first, others, b"{}"),
            (first, first, documents, b"{} "),
        ):
            with pytest.raises(psycopg.errors.CheckViolation, match="hash_seals_the_event"):
                connection.execute(insert.format(*other, sealed))
