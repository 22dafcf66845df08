"""The audit log on the test's own database."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.postgres.database import Database
from app.postgres.journal import PostgresJournal
from app.postgres.leases import Lease
from app.postgres.parameters import RECOVERING, WRITING
from app.postgres.recovery import PostgresRecovery
from tests.integration.postgres.slots import Tables
from tests.testkit.kafka import DEADLINE_S
from tests.testkit.postgres import AuditDatabase


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Postgres take half a minute, where the service itself would wait 1.4 s.

    For tests of what is written, not of when it is given up: three runs share two processors.
    """
    monkeypatch.setattr("app.postgres.database.ANSWER_WITHIN_S", DEADLINE_S)
    monkeypatch.setattr("app.postgres.database._CONNECT_WITHIN_S", DEADLINE_S)
    monkeypatch.setattr("app.postgres.database.Lease", lambda _: Lease(DEADLINE_S))
    for name, limits in (("WRITING", WRITING), ("RECOVERING", RECOVERING)):
        wide = replace(limits, statement_timeout_ms=int(DEADLINE_S * 1000))
        monkeypatch.setattr(f"app.postgres.database.{name}", wide)


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
