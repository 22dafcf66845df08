"""A log that was written before a document had a row of its own, and one that goes back to that."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine

from app.domain.alterations import AlterationResult, Outcome
from app.domain.entities import ClientQuotaEntity
from app.postgres.audit_log import PostgresJournal
from app.postgres.migrate import alembic_config, migrate
from app.postgres.recovery import PostgresRecovery
from app.service.ports.alterations import Alteration
from tests.integration.postgres.calls import Tables, concluded, found, request_of, stored, take
from tests.testkit.postgres import (
    HOSTILE_NAMES,
    AuditDatabase,
    audit_request,
    intent_of,
    record_conclusion,
    record_intent,
)

LOG = "select * from audit_event order by received_at, alteration_id, seq"
ENTITIES = "select * from audit_entity order by received_at, alteration_id, seq, ordinal"
LOCKS = "select * from quota_entity order by cluster_id, entity_hash"
VIEW = "select * from audit_entity_event order by received_at, alteration_id, seq, ordinal"
LISTED = "select at, entity::text, ops::text, before::text, outcome from audit_log order by 1, 2"
QUERIES = (LOG, ENTITIES, LOCKS, VIEW, LISTED)


def go_back(database: AuditDatabase) -> None:
    engine = create_engine(database.owner_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), "0005")
    engine.dispose()


def contents(tables: Tables, queries: Sequence[str] = QUERIES) -> list[list[dict[str, Any]]]:
    return [[row._asdict() for row in tables.run(query)] for query in queries]


@pytest.fixture
async def requests(journal: PostgresJournal, recovery: PostgresRecovery) -> list[Alteration]:
    """Every kind of record: names of all kinds, refusals of our own, events found later, none."""
    hostile, many, open_yet = request_of(*HOSTILE_NAMES), request_of(*map(str, range(700))), None
    entity = ClientQuotaEntity.of({"user": 'x],"rejected":[\x00'})
    refused = {7: AlterationResult(entity, Outcome.REFUSED, warnings=("é\ud800",))}
    hostile = replace(hostile, local_refusals=refused, reason="\n]")
    for request in (hostile, many):
        await take(journal, request)
        await record_conclusion(journal, replace(concluded(request), rejected=refused))
    open_yet = request_of("open", "found")
    await record_intent(journal, intent_of(open_yet, rests_on=["beside", "too"]))
    await record_conclusion(journal, concluded(open_yet, Outcome.UNKNOWN, None))
    await recovery.record_recovery([found(open_yet, Outcome.APPLIED, final=True, ordinal=1)])
    denied = replace(audit_request(action="denied"), local_refusals=refused)
    await journal.record_final(denied, {})
    return [hostile, many, open_yet, denied]


async def test_each_row_goes_back_and_returns_as_it_was(
    journal: PostgresJournal,
    tables: Tables,
    audit_database: AuditDatabase,
    requests: list[Alteration],
):
    records = [await stored(journal, request) for request in requests]
    written = contents(tables)
    go_back(audit_database)
    of_before = contents(tables)
    assert of_before[3:] == written[3:]
    events, entities, locks, documents, _ = of_before
    for event in events:
        payload = event["payload"]
        assert event["leaf_hash"] == hashlib.sha256(b"\0" + payload).digest()
        head = json.loads(payload[: event["head_length"]] + b"}")
        whole = json.loads(payload)
        assert list(whole)[:2] == ["at", "occurred_at"]
        assert list(whole)[-2:] == ["entities", "rejected"]
        assert whole == {**head, "entities": whole["entities"], "rejected": whole["rejected"]}
    payloads = {(event["alteration_id"], event["seq"]): event["payload"] for event in events}
    for entity, document in zip(entities, documents, strict=True):
        begin = entity["document_at"] - 1
        payload = payloads[entity["alteration_id"], entity["seq"]]
        end = begin + entity["document_length"]
        assert payload[begin:end].decode() == document["document"]
    held = sorted(lock["ordinal"] for lock in locks if lock["alteration_id"] is not None)
    assert held == [-3, -2, 0]
    migrate(audit_database.owner_url, audit_database.service_url)
    assert contents(tables) == written
    assert [await stored(journal, request) for request in requests] == records
    go_back(audit_database)
    assert contents(tables) == of_before


async def test_a_converted_lock_is_freed_with_what_it_rests_on(
    journal: PostgresJournal,
    recovery: PostgresRecovery,
    tables: Tables,
    audit_database: AuditDatabase,
    requests: list[Alteration],
):
    go_back(audit_database)
    migrate(audit_database.owner_url, audit_database.service_url)
    open_yet = requests[2]
    assert list(tables.locks(open_yet, rests_on=True)) == [0, 1]
    await recovery.record_recovery([found(open_yet, Outcome.APPLIED, final=True)])
    assert tables.locked() == 0
    assert (await stored(journal, open_yet)).concluded
