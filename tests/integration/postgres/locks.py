"""Intents, conclusions and locks, as the tests of locks and recovery need them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import namedtuple_row

from app.domain.alterations import AlterationResult, Outcome, Values
from app.domain.errors import EntityBusyError
from app.postgres.audit_log import PostgresJournal
from app.postgres.locks import entity_hash
from app.service.ports.audit_log import AuditConclusion, AuditRequest, Intent
from tests.testkit.postgres import AuditDatabase, audit_entity, audit_request, intent_of

AFTER: Values = {"producer_byte_rate": 1024.0}

INSERT = (
    "insert into quota_entity (cluster_id, entity_hash, alteration_id, ordinal, received_at, "
    "owner, taken_at, handed_over_by) values (%s, %s, gen_random_uuid(), 0, now(), 'other', now(), "
    "now()) on conflict (cluster_id, entity_hash) do update set (alteration_id, ordinal, "
    "received_at, owner, taken_at, handed_over_by) = (excluded.alteration_id, 0, now(), 'other', "
    "now(), now())"
)

FREE = "update quota_entity set alteration_id = null"


def request_of(*users: str) -> AuditRequest:
    return audit_request(*(audit_entity(n, {"user": user}) for n, user in enumerate(users)))


def concluded(
    request: AuditRequest,
    outcome: Outcome = Outcome.APPLIED,
    after: Values | None = AFTER,
    sent_at: datetime | None = None,
) -> AuditConclusion:
    results = {
        entity.ordinal: AlterationResult(entity.alteration.entity, outcome, before={}, after=after)
        for entity in request.entities
    }
    sent = (sent_at or datetime.now(UTC), "sent", "handed to broker 1")
    return AuditConclusion(request.alteration_id, results, [sent])


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

    def locks(self, request: AuditRequest) -> Mapping[int, Any]:
        query = "select * from quota_entity where alteration_id = %(id)s order by ordinal"
        return {row.ordinal: row for row in self.run(query, id=request.alteration_id)}

    def age(self, request: AuditRequest, seconds: float) -> None:
        """Let the locks be that much older than they are."""
        self.run(
            "update quota_entity set taken_at = taken_at - %(age)s, "
            "handed_over_by = handed_over_by - %(age)s where alteration_id = %(id)s",
            id=request.alteration_id,
            age=timedelta(seconds=seconds),
        )

    def state(self, request: AuditRequest, ordinal: int = 0) -> Any:
        entity = request.entities[ordinal].alteration.entity
        query = (
            'select *, "values" as stored from quota_entity '
            "where entity_hash = %(hash)s and version > 0"
        )
        (row,) = self.run(query, hash=entity_hash(entity)) or [None]
        return row


async def take(journal: PostgresJournal, request: AuditRequest) -> Intent:
    return await journal.record_intent(intent_of(request))


async def holder_of(journal: PostgresJournal, request: AuditRequest) -> str | None:
    with pytest.raises(EntityBusyError) as raised:
        await take(journal, request)
    error = raised.value
    assert (error.code, error.sent, error.retry) == ("entity-busy", "no", "safe")
    assert error.retry_after_s is not None
    assert error.retry_after_s >= 1
    return error.alteration_id
