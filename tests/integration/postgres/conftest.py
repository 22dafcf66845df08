"""The audit log on the test's own database."""

from collections.abc import AsyncIterator, Callable

import pytest

from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.runtime.clock import Patience
from tests.integration.postgres.calls import Tables
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase


@pytest.fixture
def patience() -> Patience:
    """How long Postgres may take; tests of giving up have another one."""
    return PATIENT


@pytest.fixture
async def connect(
    audit_database: AuditDatabase, patience: Patience
) -> AsyncIterator[Callable[..., Database]]:
    """Opens connections of a service, to the test's database if no URL is given."""
    opened: list[Database] = []

    def connect(url: str = audit_database.service_url) -> Database:
        opened.append(Database(url, patience=patience))
        return opened[-1]

    yield connect
    for database in opened:
        await database.close()


@pytest.fixture
def database(connect: Callable[..., Database]) -> Database:
    """The service's connections to the test's database."""
    return connect()


@pytest.fixture
def tables(audit_database: AuditDatabase) -> Tables:
    """The working tables of the test's database."""
    return Tables(audit_database)


@pytest.fixture
def journal(database: Database) -> PostgresJournal:
    """The audit log of the test's database."""
    return PostgresJournal(database)


@pytest.fixture
def recovery(database: Database) -> PostgresRecovery:
    """Recovery on the test's database."""
    return PostgresRecovery(database)
