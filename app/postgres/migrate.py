"""Bring the database to this version: tables, partitions, the role's rights."""

from pathlib import Path
from typing import Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util.exc import CommandError
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app.postgres.connect import read_url
from app.postgres.errors import first_line
from app.postgres.schema import (
    ENSURE_PARTITIONS,
    LOG_SEQUENCE,
    LOG_TABLES,
    LOG_VIEWS,
    WORKING_TABLES,
)

_ADVISORY_LOCK: Final = 7_052_811_546
_WAIT_FOR_OTHERS: Final = "60s"
_WAIT_FOR_TABLES: Final = "5s"

_GRANTS: Final = (
    "grant usage on schema {schema} to {role}",
    "revoke all on {log}, {views}, alembic_version from {role}",
    "grant select, insert on {log} to {role}",
    "grant select on {views}, alembic_version to {role}",
    "grant usage on sequence {sequence} to {role}",
    "revoke all on {work} from {role}",
    "grant select, insert, update, delete on {work} to {role}",
    "grant execute on function ensure_audit_partitions(integer, integer) to {role}",
)

_PARTITIONS: Final = """
    select relid::regclass::text from (values ('audit_event'), ('audit_entity')) as own(name)
    cross join pg_partition_tree(cast(name as regclass)) where isleaf
    """

_SAME_ROLE: Final = (
    "Warning: QUOTAS_DATABASE_URL and QUOTAS_MIGRATION_DATABASE_URL name the same role {role}, "
    "which owns the audit log: triggers alone keep it append-only. Give the service a role of "
    "its own."
)


class MigrationError(Exception):
    """Say in one sentence why the database was not migrated; it is as it was before."""


def migrate(owner_url: str, service_url: str) -> list[str]:
    """Migrate in one transaction, as the owner; several at once take turns.

    Args:
        owner_url: The role that owns the tables, or will.
        service_url: The role that the service uses; it gets INSERT and SELECT on the log.

    Returns:
        Sentences for the operator.

    Raises:
        MigrationError: Nothing was changed.
    """
    try:
        parameters = read_url(owner_url)
        service_role = read_url(service_url).get("user")
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(**{"connect_timeout": 5, **parameters}),
            poolclass=NullPool,
            use_native_hstore=False,
        )
        with engine.begin() as connection:
            return _migrate(connection, service_role)
    except (SQLAlchemyError, psycopg.Error) as error:
        reason = first_line(error.orig if isinstance(error, DBAPIError) else error)
        raise MigrationError(f"The database was not migrated: {reason}") from error
    except (CommandError, ValueError) as error:
        raise MigrationError(f"The database was not migrated: {error}") from error


def alembic_config(connection: Connection) -> Config:
    """Return Alembic's configuration for this project's migrations on an open connection.

    Raises:
        MigrationError: The folder of the migrations is not there.
    """
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def migrations_folder() -> Path:
    """Return ``migrations/``: beside the package ``app``, or in the working directory.

    Raises:
        MigrationError: It is in neither folder.
    """
    folders = (Path(__file__).parents[2] / "migrations", Path.cwd() / "migrations")
    for folder in folders:
        if (folder / "env.py").is_file():
            return folder
    raise MigrationError(f"There is no migrations folder at {' or '.join(map(str, folders))}.")


def revision_of(connection: Connection) -> str | None:
    """Return the revision of the schema, or null where there is none."""
    return MigrationContext.configure(connection).get_current_revision()


def _migrate(connection: Connection, service_role: str | None) -> list[str]:
    _take_turns(connection)
    encoding = connection.scalar(text("show server_encoding"))
    if encoding != "UTF8":
        raise MigrationError(f"The database's encoding is {encoding}; create it with UTF8.")
    before = revision_of(connection)
    command.upgrade(alembic_config(connection), "head")
    after = revision_of(connection)
    connection.exec_driver_sql(ENSURE_PARTITIONS)
    return [
        f"The schema is at {after} already."
        if before == after
        else f"Migrated from {before or 'empty'} to {after}.",
        _grant(connection, service_role),
    ]


def _take_turns(connection: Connection) -> None:
    connection.execute(text(f"set local lock_timeout = '{_WAIT_FOR_OTHERS}'"))
    connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    connection.execute(text(f"set local lock_timeout = '{_WAIT_FOR_TABLES}'"))


def _grant(connection: Connection, service_role: str | None) -> str:
    owner = connection.scalar(text("select current_user"))
    if service_role in (None, owner):
        return _SAME_ROLE.format(role=owner)
    quote = connection.dialect.identifier_preparer.quote_identifier
    schema = connection.scalar(text("select current_schema()"))
    names = {
        "role": quote(service_role),
        "schema": quote(schema),
        "work": ", ".join(WORKING_TABLES),
        "log": ", ".join(LOG_TABLES),
        "views": ", ".join(LOG_VIEWS),
        "sequence": LOG_SEQUENCE,
    }
    for statement in _GRANTS:
        connection.execute(text(statement.format(**names)))
    for partition in connection.exec_driver_sql(_PARTITIONS).scalars().all():
        connection.execute(text(f"revoke all on {quote(partition)} from {names['role']}"))
    return f"The role {service_role} may read the audit log and add to it, and keep locks and keys."
