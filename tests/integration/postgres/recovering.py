"""Alterations that are in doubt, claimed and found, as the tests of recovery need them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.domain.alterations import AlterationResult, Outcome, Values
from app.postgres.audit_log import PostgresJournal
from app.postgres.recovery import PostgresRecovery
from app.service.ports.audit_log import AlterationRecord, AuditQuery, AuditRequest
from app.service.ports.recovery import OpenAlteration, Recovered
from tests.integration.postgres.locks import AFTER, concluded, request_of
from tests.testkit.postgres import CLUSTER, intent_of


async def opened(
    journal: PostgresJournal, *users: str, owner: str = "dead", broker_id: int | None = 1
) -> AuditRequest:
    request = replace(request_of(*users), broker_id=broker_id)
    await journal.record_intent(intent_of(request, owner))
    return request


async def in_doubt(journal: PostgresJournal, *users: str) -> AuditRequest:
    request = await opened(journal, *users, owner="alive")
    await journal.record_conclusion(concluded(request, Outcome.UNKNOWN, None))
    return request


async def claimed(recovery: PostgresRecovery, owner: str = "me") -> Sequence[OpenAlteration]:
    return await recovery.claim_open(CLUSTER, owner, limit=100)


def found(
    request: AuditRequest, outcome: Outcome, *, final: bool, ordinal: int = 0, **evidence: Any
) -> Recovered:
    entity = request.entities[ordinal].alteration.entity
    after: Values | None = None if outcome is Outcome.REFUSED else AFTER
    result = AlterationResult(entity, outcome, True, {}, after)
    return Recovered(request.alteration_id, ordinal, result, final=final, evidence=evidence)


async def stored(journal: PostgresJournal, request: AuditRequest) -> AlterationRecord:
    record = await journal.alteration(request.alteration_id)
    assert record is not None
    return record


async def listed(journal: PostgresJournal, request: AuditRequest) -> list[str]:
    """The outcomes of the alteration's rows, on which all queries for them agree."""
    page = await journal.audit_rows(AuditQuery())
    rows = [row.outcome for row in page.rows if row.alteration_id == request.alteration_id]
    for outcome in set(rows):
        page = await journal.audit_rows(AuditQuery(outcome=outcome))
        assert request.alteration_id in [row.alteration_id for row in page.rows]
    return rows
