"""Whatever happens to Postgres: nothing is sent, no call hangs, and it works again afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psutil
import pytest
from psycopg.conninfo import conninfo_to_dict

from app.domain.entities import Caller
from app.domain.errors import NotSentError, QuotaError, Sent
from app.localdev.postgres import LocalPostgres
from app.postgres.audit_log import PostgresJournal
from app.postgres.connect import DENYING, LEADING, QUERYING, RECOVERING, WRITING
from app.postgres.drift import PostgresDriftJournal
from app.postgres.pool import Database, Lease
from app.service.ports.audit_log import AuditQuery
from tests.integration.postgres.calls import (
    assert_unavailable,
    assert_works,
    assert_works_again,
    every_call,
    intent,
    until_connected,
)
from tests.testkit.event_loops import until
from tests.testkit.outages import altered, outage
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import CLUSTER, AuditDatabase, intend

MOST_CONNECTIONS = sum(pool.size for pool in (WRITING, RECOVERING, QUERYING, DENYING, LEADING))
"""Each that was lost is replaced; none is left beside its replacement."""

gives_up = pytest.mark.parametrize("patience", [PROMPT])
"""Of a test that waits until the service does."""

Calls = Callable[[Database, PostgresJournal], list[Awaitable[object]]]


def slow_calls_too(database: Database, journal: PostgresJournal) -> list[Awaitable[object]]:
    drift = PostgresDriftJournal(database)
    slow = [drift.baseline(CLUSTER), drift.recent_doubtful(CLUSTER, [])]
    return [*every_call(database, journal), *slow, journal.audit_rows(AuditQuery())]


def many_calls(database: Database, journal: PostgresJournal) -> list[Awaitable[object]]:
    return [call for _ in range(10) for call in every_call(database, journal)]


def an_intent(_database: Database, journal: PostgresJournal) -> list[Awaitable[object]]:
    return [intend(journal, intent())]


def writes(database: Database, journal: PostgresJournal) -> list[Awaitable[object]]:
    return [*an_intent(database, journal), journal.check_writable()]


async def fill_the_pools(journal: PostgresJournal) -> None:
    await assert_works_again(journal)
    await asyncio.gather(*(journal.audit_rows(AuditQuery()) for _ in range(10)))


@gives_up
@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(
    ("kind", "calls"),
    [("stopped", slow_calls_too), ("killed", slow_calls_too), ("paused", many_calls)],
)
async def test_a_server_that_is_away_is_an_error_and_one_that_is_back_is_used(
    postgres: LocalPostgres,
    database: Database,
    journal: PostgresJournal,
    *,
    kind: str,
    calls: Calls,
    warm: bool,
):
    if warm:
        await fill_the_pools(journal)
    with outage(postgres, kind):
        await assert_unavailable(*calls(database, journal))
    await assert_works_again(journal)


DISCONNECT = (
    "select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'quotas_service'"
)
DROP_THE_PARTITION = """
do $$ begin
  execute format('drop table audit_event_y%s', to_char(now() at time zone 'utc', 'YYYY"m"MM'));
end $$
"""
"""Of the present month, by the clock of the server."""
READ_ONLY = "alter database {} set default_transaction_read_only"
LOCK = "begin; lock table audit_event in access exclusive mode"
MIGRATE = "; run `kafka-quota-service migrate`"


@gives_up
@pytest.mark.parametrize(
    ("breaking", "repair", "warm", "calls", "cause"),
    [
        (
            "alter database {} connection limit 0",
            "alter database {} connection limit -1",
            False,
            every_call,
            "no connection left",
        ),
        (f"{READ_ONLY} = on", f"{READ_ONLY} = off", True, writes, "read-only"),
        (f"{READ_ONLY} = on", f"{READ_ONLY} = off", False, writes, "read-only"),
        (LOCK, "rollback", False, an_intent, "locked"),
        (
            DROP_THE_PARTITION,
            "select ensure_audit_partitions(0, 0)",
            True,
            writes,
            "no partition for the present month",
        ),
        (
            "alter table audit_event rename to elsewhere",
            "alter table elsewhere rename to audit_event",
            True,
            writes,
            f"does not exist{MIGRATE}",
        ),
        (
            "revoke insert on audit_event from quotas_service",
            "grant insert on audit_event to quotas_service",
            True,
            writes,
            f"lacks a right on the log{MIGRATE}",
        ),
    ],
)
async def test_a_log_that_takes_no_row_is_an_error_that_says_why(
    audit_database: AuditDatabase,
    database: Database,
    journal: PostgresJournal,
    *,
    breaking: str,
    repair: str,
    warm: bool,
    calls: Calls,
    cause: str,
):
    if warm:
        await fill_the_pools(journal)
    name, disconnects = audit_database.name, [DISCONNECT] if READ_ONLY in breaking else []
    statements = [breaking.replace("{}", name), *disconnects]
    with altered(audit_database.superuser_url, statements, [repair.replace("{}", name)]):
        for error in await assert_unavailable(*calls(database, journal)):
            assert cause in error.detail
            assert error.alteration_id is None, "before the commit there is no doubt"
    await assert_works_again(journal)


async def test_a_restart_between_two_calls_goes_unnoticed(
    postgres: LocalPostgres, journal: PostgresJournal
):
    await fill_the_pools(journal)
    with outage(postgres, "stopped"):
        pass
    await assert_works(journal)


@gives_up
async def test_an_abandoned_attempt_to_connect_leaves_no_socket(
    postgres: LocalPostgres, database: Database, journal: PostgresJournal
):
    port = conninfo_to_dict(postgres.superuser_url)["port"]

    def connected() -> int:
        sockets = psutil.Process().net_connections("tcp")
        return sum(bool(each.raddr) and str(each.raddr.port) == port for each in sockets)

    before = connected()
    with outage(postgres, "paused"):
        await assert_unavailable(*every_call(database, journal))
        await until(lambda: connected() == before)


@gives_up
async def test_a_caller_that_gives_up_does_not_spoil_the_pool(
    postgres: LocalPostgres,
    database: Database,
    journal: PostgresJournal,
    audit_database: AuditDatabase,
):
    await fill_the_pools(journal)
    with outage(postgres, "paused"):
        tasks = [
            asyncio.ensure_future(call) for _ in range(8) for call in every_call(database, journal)
        ]
        await asyncio.wait(tasks, timeout=0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert any(task.cancelled() for task in tasks)
    await assert_works_again(journal)
    await until_connected(audit_database, MOST_CONNECTIONS)


async def test_closing_leaves_no_connection_behind(
    journal: PostgresJournal, database: Database, audit_database: AuditDatabase
):
    await fill_the_pools(journal)
    await database.close()
    await until_connected(audit_database, 0)


async def test_a_row_that_breaks_a_rule_of_the_log_is_our_fault_and_no_outage(
    journal: PostgresJournal, database: Database
):
    async def divide(lease: Lease) -> None:
        await lease.rows("select 1 / 0")

    principal = Caller("User:" + "a" * 1100, "192.0.2.1", "bearer")
    too_long = replace(intent(), caller=principal)
    for call in (journal.record_final(too_long, {}), intend(journal, too_long)):
        with pytest.raises(QuotaError) as caught:
            await call
        assert (caught.value.code, caught.value.sent) == ("internal-error", Sent.NO)
    with pytest.raises(QuotaError) as caught:
        await database.writing.run(divide)
    assert caught.value.code == "internal-error"
    await assert_works(journal)


async def test_slow_reports_do_not_hold_up_intents(journal: PostgresJournal, database: Database):
    async def report(lease: Lease) -> None:
        await lease.rows("select pg_sleep(120)")

    reports = [asyncio.create_task(database.querying.run(report, within_s=120)) for _ in range(8)]
    await intend(journal, intent())
    await journal.check_writable()
    assert not any(report.done() for report in reports)
    for item in reports:
        item.cancel()
    await asyncio.wait(reports)


async def test_a_read_that_takes_too_long_is_cancelled_and_reported_as_such(database: Database):
    async def slow(lease: Lease) -> None:
        await lease.rows("select pg_sleep(60)")

    async def limit(lease: Lease) -> str:
        return str((await lease.rows("show client_connection_check_interval"))[0][0])

    with pytest.raises(NotSentError) as caught:
        await database.querying.run(slow, within_s=0.2)
    assert caught.value.code == "query-too-slow"
    with pytest.raises(NotSentError) as caught:
        await database.writing.run(slow, within_s=0.2)
    assert caught.value.code == "audit-log-unavailable"
    assert await database.querying.run(limit) == await database.writing.run(limit) == "1s"


async def backend(lease: Lease) -> int:
    found: int = (await lease.rows("select pg_backend_pid()"))[0][0]
    return found


async def sleep_too_long(lease: Lease) -> None:
    await lease.rows("select pg_sleep(30)")


async def two_backends(database: Database) -> set[int]:
    """Use two connections at the same time."""
    both = asyncio.Barrier(2)

    async def work(lease: Lease) -> int:
        found = await backend(lease)
        await both.wait()
        return found

    return set(await asyncio.gather(*(database.writing.run(work, within_s=30) for _ in range(2))))


async def test_one_silence_speaks_against_one_connection_and_two_against_all(database: Database):
    first = await two_backends(database)
    with pytest.raises(NotSentError):
        await database.writing.run(sleep_too_long, within_s=0.2)
    second = await two_backends(database)
    assert len(first & second) == 1
    for _ in range(2):
        with pytest.raises(NotSentError):
            await database.writing.run(sleep_too_long, within_s=0.2)
    assert not second & await two_backends(database)
