"""Is this the database that this version of the service needs? Asked at start-up and when ready."""

from typing import Any, Final

from sqlalchemy import Row, text

from app.postgres.database import Database
from app.postgres.leases import Lease
from app.postgres.partitions import ENSURE_PARTITIONS
from app.postgres.tables import WORKING_TABLES

SCHEMA_REVISION: Final = "0008"
"""The newest migration."""

_MIGRATE: Final = "run `kafka-quota-service migrate`"

_TABLES: Final = text(
    "select to_regclass('alembic_version') is not null and to_regclass('audit_event') is not null"
)

_RIGHTS: Final = text(
    """
    with log as (
      select relid, isleaf, c.relname, c.relowner from pg_partition_tree('audit_event')
      join pg_class c on c.oid = relid
      union all
      select oid, false, relname, relowner from pg_class
      where oid = to_regclass('authentication_failure')
    ), me as (
      select bool_and(relowner <> current_user::regrole) as is_other from log where not isleaf
    )
    select
      current_user as role,
      has_table_privilege('audit_event', 'select') and has_table_privilege('audit_event', 'insert')
        and has_table_privilege('alembic_version', 'select')
        and has_table_privilege(cast(to_regclass('authentication_failure') as oid), 'insert')
          is not false as has_enough,
      (select is_other from me) and exists (
        select from log where has_table_privilege(relid, 'update, delete, truncate, trigger')
        or has_any_column_privilege(relid, 'update')
        or isleaf and has_table_privilege(relid, 'insert')
        or pg_has_role(relowner, 'member')) as has_too_much,
      (select min(relname) from log where not exists (
        select from pg_trigger t join pg_proc f on f.oid = tgfoid
        where tgrelid = relid and tgenabled = 'A' and proname = 'refuse_change_of_audit_event'
        having bit_or(tgtype) & 56 = 56)) as unguarded,
      to_regclass(to_char(now() at time zone 'UTC', '"audit_event_y"YYYY"m"MM')) is not null
        as has_partition,
      to_regclass(to_char((now() at time zone 'UTC') + interval '1 month',
        '"audit_event_y"YYYY"m"MM')) is not null as has_next_partition,
      (select min(name) from unnest(cast(:working_tables as text[])) as name
        where (
          select bool_and(has_table_privilege(cast(to_regclass(name) as oid), way))
          from unnest(array['select', 'insert', 'update', 'delete']) as way
        ) is not true) as unusable,
      coalesce((select indisunique and indisvalid from pg_index
        where indexrelid = to_regclass('audit_event_one_conclusion')), false) as has_one_conclusion
    """
)
"""56 are the bits of DELETE, UPDATE and TRUNCATE in ``pg_trigger.tgtype``; A means always."""


async def ensure_partitions(database: Database) -> int:
    """Create what is missing of the partitions up to three months ahead; return how many.

    Meant to be called every day: ``migrate`` makes them too, but does not run by itself.

    Raises:
        NotSentError: Postgres did not do it; the partitions that exist are as they were.
    """
    return await database.writing.run(_ensured)


async def schema_problem(database: Database) -> str | None:
    """Return a sentence that says what is wrong with the schema, or null.

    Raises:
        NotSentError: Postgres does not answer.
    """
    return await database.writing.run(_problem)


async def _ensured(lease: Lease) -> int:
    created: int = (await lease.connection.execute(ENSURE_PARTITIONS)).scalar_one()
    return created


async def _problem(lease: Lease) -> str | None:
    connection = lease.connection
    if not await connection.scalar(_TABLES):
        return f"The database has no audit log yet: {_MIGRATE}."
    tables = {"working_tables": list(WORKING_TABLES)}
    rights = (await connection.execute(_RIGHTS, tables)).one()
    if not rights.has_enough:
        return f"The role {rights.role} may not read and add to the audit log: {_MIGRATE}."
    revision = await connection.scalar(text("select version_num from alembic_version"))
    return _problem_with_revision(revision) or _problem_with(rights)


def _problem_with(rights: Row[Any]) -> str | None:
    if rights.has_too_much:
        return (
            f"The role {rights.role} could change or remove audit rows: {_MIGRATE}, and take away "
            "rights and memberships beyond INSERT and SELECT on audit_event."
        )
    if rights.unguarded is not None:
        return (
            f"The table {rights.unguarded} lacks a trigger that keeps it append-only: "
            "create it again as in the migration."
        )
    if rights.unusable is not None:
        return f"The role {rights.role} may not use the table {rights.unusable}: {_MIGRATE}."
    if not rights.has_one_conclusion:
        return (
            "The index audit_event_one_conclusion, which keeps conclusions unique, is missing or "
            "invalid: create it again as in the migration."
        )
    return _problem_with_partitions(rights)


def _problem_with_partitions(rights: Row[Any]) -> str | None:
    if not rights.has_partition:
        return f"The audit log has no partition for the present month: {_MIGRATE}."
    if not rights.has_next_partition:
        return f"The audit log has no partition for the next month: {_MIGRATE}."
    return None


def _problem_with_revision(revision: str | None) -> str | None:
    if revision == SCHEMA_REVISION:
        return None
    if revision is None or revision < SCHEMA_REVISION:
        return f"The schema is at {revision or 'none'}, older than {SCHEMA_REVISION}: {_MIGRATE}."
    return (
        f"The schema is at {revision}, newer than {SCHEMA_REVISION}: "
        "run the version of the service that belongs to it."
    )
