"""The audit log on the test's own database."""

from collections.abc import AsyncIterator

import pytest

from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.runtime.clock import Patience
from tests.integration.postgres.locks import Tables
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase


@pytest.fixture
def patience() -> Patience:
    """How long Postgres may take; tests of giving up have another one."""
    return PATIENT


@pytest.fixture
async def database(audit_database: AuditDatabase, patience: Patience) -> AsyncIterator[Database]:
    """The service's connections to the test's database."""
    connections = Database(audit_database.service_url, patience=patience)
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
