"""Taking entities, and asking who has them."""

import pytest

from app.domain.errors import EntityBusyError
from app.postgres.audit_log import PostgresJournal
from app.service.ports.audit_log import AuditRequest, Intent
from tests.testkit.postgres import intent_of

INSERT = (
    "insert into quota_entity (cluster_id, entity_hash, alteration_id, ordinal, received_at, "
    "owner, taken_at, handed_over_by) values (%s, %s, gen_random_uuid(), 0, now(), 'other', now(), "
    "now()) on conflict (cluster_id, entity_hash) do update set (alteration_id, ordinal, "
    "received_at, owner, taken_at, handed_over_by) = (excluded.alteration_id, 0, now(), 'other', "
    "now(), now())"
)

FREE = "update quota_entity set alteration_id = null"


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
