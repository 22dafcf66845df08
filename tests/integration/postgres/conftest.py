"""The audit log on the test's own database."""

from collections.abc import AsyncIterator

import pytest

from app.postgres.database import Database
from app.postgres.journal import PostgresJournal
from app.postgres.recovery import PostgresRecovery
from tests.integration.postgres.slots import Tables
from tests.support.postgres import AuditDatabase


@pytest.fixture
async def database(audit_database: AuditDatabase) -> AsyncIterator[Database]:
    """The service's connections to the test's database."""
    connections = Database(audit_database.service_url)
    yield connections
    await connections.close()


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
