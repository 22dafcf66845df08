"""Counts of refused credentials in a real Postgres: each once, and never changed."""

from datetime import UTC, datetime
from functools import partial

import psycopg
import pytest

from app.domain.errors import NotSentError
from app.postgres.authentication_failures import record_authentication_failures
from app.postgres.pool import Database
from app.service.auth.denials import AuthenticationFailures, FailureWriter
from tests.integration.postgres.calls import Tables, run_as
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.postgres import AuditDatabase

MINUTE = datetime(2026, 11, 21, 1, 2, tzinfo=UTC)
ROWS = "select minute, source::text, method, reason, n from authentication_failure order by n"


def counted() -> AuthenticationFailures:
    failures = AuthenticationFailures(now=lambda: MINUTE)
    for _ in range(3):
        failures.count("203.0.113.7", "bearer-token", "invalid-token")
    failures.count("2001:db8::1", "none", "unauthenticated")
    for _ in range(2):
        failures.count("", "none", "unauthenticated")
    return failures


EXPECTED = [
    (MINUTE, "2001:db8::/64", "none", "unauthenticated", 1),
    (MINUTE, None, "none", "unauthenticated", 2),
    (MINUTE, "203.0.113.0/24", "bearer-token", "invalid-token", 3),
]


async def test_counts_are_stored_as_they_are(database: Database, tables: Tables):
    record = partial(record_authentication_failures, database)
    await FailureWriter(counted(), record, CountedMetrics()).close()
    assert tables.run(ROWS) == EXPECTED


async def test_a_repeated_write_counts_once(database: Database, tables: Tables):
    counts = counted().take(with_present=True)
    for _ in range(3):
        await record_authentication_failures(database, counts)
    assert tables.run(ROWS) == EXPECTED


@pytest.mark.parametrize(
    "statement",
    [
        "update authentication_failure set n = 1",
        "delete from authentication_failure",
        "truncate authentication_failure",
    ],
)
async def test_nobody_changes_what_was_counted(
    audit_database: AuditDatabase, database: Database, tables: Tables, statement: str
):
    await record_authentication_failures(database, counted().take(with_present=True))
    for url in (audit_database.service_url, audit_database.owner_url):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run_as(url, statement)
    assert tables.run(ROWS) == EXPECTED


async def test_a_database_that_is_down_loses_nothing(tables: Tables):
    down = Database("postgresql://quotas_service@127.0.0.1:1/quotas")
    with pytest.raises(NotSentError):
        await record_authentication_failures(down, counted().take(with_present=True))
    await down.close()
    assert tables.run(ROWS) == []
