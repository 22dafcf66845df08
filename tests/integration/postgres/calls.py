"""Calls of the audit log, and what they must come to."""

import asyncio
import itertools
from collections.abc import Awaitable
from contextlib import suppress

import psycopg

from app.domain.alterations import AlterationResult, Outcome
from app.domain.errors import NotSentError
from app.postgres.audit_log import PostgresJournal
from app.service.ports.audit_log import AuditConclusion, AuditRequest
from tests.testkit.event_loops import until
from tests.testkit.kafka import DEADLINE_S
from tests.testkit.postgres import AuditDatabase, audit_entity, audit_request, intend

_NUMBERS = itertools.count(1)


def intent() -> AuditRequest:
    return audit_request(audit_entity(0, {"user": f"user-{next(_NUMBERS)}"}))


def conclusion(request: AuditRequest) -> AuditConclusion:
    entity = request.entities[0].alteration.entity
    result = AlterationResult(entity, Outcome.NOT_SENT)
    return AuditConclusion(request.alteration_id, {0: result})


def every_call(journal: PostgresJournal) -> list[Awaitable[object]]:
    request = intent()
    return [
        intend(journal, request),
        journal.record_final(request, {}),
        journal.record_conclusion(conclusion(request)),
        journal.check_writable(),
        journal.alteration(request.alteration_id),
    ]


async def assert_unavailable(*calls: Awaitable[object]) -> list[NotSentError]:
    errors = await asyncio.gather(*calls, return_exceptions=True)
    for error in errors:
        assert isinstance(error, NotSentError), error
        assert (error.code, error.sent, error.retry) == ("audit-log-unavailable", "no", "safe")
        assert error.detail.startswith("The audit log is unavailable, so nothing was sent: ")
    return [error for error in errors if isinstance(error, NotSentError)]


async def assert_works(journal: PostgresJournal) -> None:
    requests = [intent() for _ in range(20)]
    await asyncio.gather(*(intend(journal, request) for request in requests))
    for request in requests:
        assert await journal.alteration(request.alteration_id) is not None


async def assert_works_again(journal: PostgresJournal) -> None:
    """Try until it works: a server that was halted has to catch up first."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(NotSentError):
                return await assert_works(journal)


async def until_a_call_waits(database: AuditDatabase) -> None:
    """Wait until a transaction waits for the lock of another."""
    query = "select count(*) from pg_locks where not granted"
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        await until(lambda: connection.execute(query).fetchone() != (0,))


def run_as(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
