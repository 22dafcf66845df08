"""Calls of the audit log, what they must come to, and the tables beneath."""

import asyncio
import itertools
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import namedtuple_row

from app.domain.alterations import AlterationResult, Outcome, Values
from app.domain.errors import EntityBusyError, NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.locks import entity_hash
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.ports.alterations import Alteration, AlterationRecord, Conclusion, IdempotencyKey
from app.service.ports.audit_log import (
    AuditQuery,
    OpenAlteration,
    Recovered,
)
from tests.testkit.event_loops import until
from tests.testkit.kafka import DEADLINE_S
from tests.testkit.postgres import (
    ALICE,
    CLUSTER,
    AuditDatabase,
    audit_change,
    audit_request,
    intend,
    intent_of,
    record_conclusion,
    record_intent,
)

AFTER: Values = {"producer_byte_rate": 1024.0}

INSERT = (
    "insert into quota_entity (cluster_id, entity_hash, alteration_id, ordinal, received_at, "
    "owner, taken_at, handed_over_by) values (%s, %s, gen_random_uuid(), 0, now(), 'other', now(), "
    "now()) on conflict (cluster_id, entity_hash) do update set (alteration_id, ordinal, "
    "received_at, owner, taken_at, handed_over_by) = (excluded.alteration_id, 0, now(), 'other', "
    "now(), now())"
)

FREE = "update quota_entity set alteration_id = null"


def request_of(*users: str) -> Alteration:
    return audit_request(*(audit_change(n, {"user": user}) for n, user in enumerate(users)))


def hash_of(key: IdempotencyKey) -> bytes:
    """Return what the log finds alice's key by."""
    return key.hash_for(ALICE.principal, CLUSTER)


def concluded(
    request: Alteration,
    outcome: Outcome = Outcome.APPLIED,
    after: Values | None = AFTER,
    sent_at: datetime | None = None,
) -> Conclusion:
    results = {
        entity.ordinal: AlterationResult(entity.entity, outcome, before={}, after=after)
        for entity in request.changes
    }
    sent = (sent_at or datetime.now(UTC), "sent", "handed to broker 1")
    return Conclusion(request.alteration_id, results, [sent])


class Tables:
    """The working tables of the test's database, as they are, and as a test wants them."""

    def __init__(self, database: AuditDatabase) -> None:
        self._url = database.owner_url

    def run(self, statement: str | sql.Composed, **values: Any) -> list[Any]:
        with psycopg.connect(self._url, autocommit=True, row_factory=namedtuple_row) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def count(self, table: str) -> int:
        query = sql.SQL("select count(*) as number from {}").format(sql.Identifier(table))
        return int(self.run(query)[0].number)

    def locked(self) -> int:
        return int(self.run("select count(alteration_id) as number from quota_entity")[0].number)

    def audited(self) -> int:
        return len(self.run("select 1 from quota_entity where version > 0"))

    def locks(self, request: Alteration, *, rests_on: bool = False) -> Mapping[int, Any]:
        """Locks of what is altered, or of what that rests on, by their ordinals."""
        query = """
            select * from quota_entity
            where alteration_id = %(id)s and rests_on = %(rests_on)s order by ordinal
        """
        found = self.run(query, id=request.alteration_id, rests_on=rests_on)
        return {row.ordinal: row for row in found}

    def age(self, request: Alteration, seconds: float) -> None:
        """Let the locks be that much older than they are."""
        self.run(
            "update quota_entity set taken_at = taken_at - %(age)s, "
            "changed_at = changed_at - %(age)s, handed_over_by = handed_over_by - %(age)s "
            "where alteration_id = %(id)s",
            id=request.alteration_id,
            age=timedelta(seconds=seconds),
        )

    def state(self, request: Alteration, ordinal: int = 0) -> Any:
        entity = request.changes[ordinal].entity
        query = (
            'select *, "values" as stored from quota_entity '
            "where entity_hash = %(hash)s and version > 0"
        )
        (row,) = self.run(query, hash=entity_hash(entity)) or [None]
        return row


async def take(
    journal: PostgresJournal,
    request: Alteration,
    key: IdempotencyKey | None = None,
    supersedes: str | None = None,
) -> Alteration:
    return await record_intent(journal, intent_of(request, key=key, supersedes=supersedes))


async def holder_of(journal: PostgresJournal, request: Alteration) -> str | None:
    with pytest.raises(EntityBusyError) as raised:
        await take(journal, request)
    error = raised.value
    assert (error.code, error.sent, error.retry) == ("entity-busy", "no", "safe")
    assert error.retry_after_s is not None
    assert error.retry_after_s >= 1
    return error.alteration_id


async def opened(
    journal: PostgresJournal, *users: str, owner: str = "dead", broker_id: int | None = 1
) -> Alteration:
    request = replace(request_of(*users), broker_id=broker_id)
    await record_intent(journal, intent_of(request, owner))
    return request


async def in_doubt(journal: PostgresJournal, *users: str) -> Alteration:
    request = await opened(journal, *users, owner="alive")
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None))
    return request


async def claimed(recovery: PostgresRecovery, owner: str = "me") -> Sequence[OpenAlteration]:
    return await recovery.claim_open(CLUSTER, owner, limit=100)


def found(
    request: Alteration, outcome: Outcome, *, final: bool, ordinal: int = 0, **evidence: Any
) -> Recovered:
    entity = request.changes[ordinal].entity
    after: Values | None = None if outcome is Outcome.REFUSED else AFTER
    result = AlterationResult(entity, outcome, True, {}, after)
    evidence = {"before_is_proven": True, **evidence}
    return Recovered(request.alteration_id, ordinal, result, final=final, evidence=evidence)


async def stored(journal: PostgresJournal, request: Alteration) -> AlterationRecord:
    record = await journal.alteration(request.alteration_id)
    assert record is not None
    return record


async def listed(journal: PostgresJournal, request: Alteration) -> list[str]:
    """The outcomes of the alteration's rows, on which all queries for them agree."""
    page = await journal.audit_rows(AuditQuery())
    rows = [row.outcome for row in page.rows if row.alteration_id == request.alteration_id]
    for outcome in set(rows):
        page = await journal.audit_rows(AuditQuery(outcome=outcome))
        assert request.alteration_id in [row.alteration_id for row in page.rows]
    return rows


_NUMBERS = itertools.count(1)


def intent() -> Alteration:
    return audit_request(audit_change(0, {"user": f"user-{next(_NUMBERS)}"}))


def every_call(database: Database, journal: PostgresJournal) -> list[Awaitable[object]]:
    recovery, drift = PostgresRecovery(database), PostgresDriftJournal(database)
    request = intent()
    return [
        recovery.beat(CLUSTER, "me"),
        recovery.claim_open(CLUSTER, "me", limit=10),
        recovery.record_recovery([found(request, Outcome.APPLIED, final=True)]),
        drift.try_lead(CLUSTER),
        drift.keep_baseline(CLUSTER, {request.changes[0].entity: AFTER}),
        intend(journal, request),
        journal.record_final(request, {}),
        record_conclusion(journal, concluded(request, Outcome.NOT_SENT, None)),
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


async def until_connected(database: AuditDatabase, at_most: int) -> None:
    """Wait until the service has no more connections than that."""
    query = (
        "select count(*) <= %s from pg_stat_activity where usename = 'quotas_service' "
        "and datname = current_database()"
    )
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        await until(lambda: connection.execute(query, [at_most]).fetchone() == (True,))


async def until_a_call_waits(database: AuditDatabase) -> None:
    """Wait until a transaction waits for the lock of another."""
    query = "select count(*) from pg_locks where not granted"
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        await until(lambda: connection.execute(query).fetchone() != (0,))


def run_as(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
