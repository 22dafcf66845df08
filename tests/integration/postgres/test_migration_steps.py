"""Up, down and up again with a log that holds every kind of event."""

import psycopg
import pytest
from alembic import command
from sqlalchemy import create_engine

from app.domain.alterations import AlterationResult, Outcome
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.migrate import alembic_config, migrate
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.ports.audit_log import AlterationRecord, AuditQuery, AuditRequest, AuditRow
from app.service.ports.recovery import Recovered
from tests.integration.postgres.calls import run_as
from tests.integration.postgres.slots import Tables, concluded, request_of
from tests.integration.postgres.test_drift import changed
from tests.testkit.postgres import CLUSTER, AuditDatabase, claim_of, intend

FIRST_EVENT = (
    "insert into audit_event (received_at, alteration_id, ordinal, seq, event_type, at, "
    "occurred_at, cluster_id, principal, action, payload, leaf_hash) values (now(), "
    "gen_random_uuid(), -1, 0, 'intent', now(), now(), 'c', 'p', 'alter', '{}', "
    "sha256('\\x00'::bytea || '{}'::bytea))"
)
RECOVERY = (
    "insert into audit_event (received_at, alteration_id, ordinal, seq, event_type, at, "
    "occurred_at, payload, leaf_hash) values (now(), gen_random_uuid(), 0, 2, 'recovery', now(), "
    "now(), '{}', sha256('\\x00'::bytea || '{}'::bytea))"
)


def go_back(database: AuditDatabase) -> None:
    engine = create_engine(database.owner_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), "0001")
    engine.dispose()


async def write_every_kind(database: Database) -> list[AuditRequest]:
    journal, recovery = PostgresJournal(database), PostgresRecovery(database)
    requests = [request_of(user) for user in ("applied", "found", "old", "open")]
    for request in requests:
        await intend(journal, request)
    await journal.record_conclusion(concluded(requests[0]))
    for request in requests[1:3]:
        await journal.record_conclusion(concluded(request, Outcome.UNKNOWN, None))
    entity = requests[1].entities[0].alteration.entity
    result = AlterationResult(entity, Outcome.OBSERVED_OTHER, True, {}, {"a": 1.0})
    for final in (False, True):
        found = Recovered(requests[1].alteration_id, 0, result, final=final, evidence={})
        await recovery.record_recovery([found])
    new = request_of("old")
    await journal.record_intent(new, claim_of(new, supersedes=requests[2].alteration_id))
    late = changed("found", {"a": 1.0}, {}, linked=requests[1].alteration_id)
    assert await PostgresDriftJournal(database).record_drift(CLUSTER, [late])
    return [*requests, new]


async def what_the_log_says(
    database: Database, requests: list[AuditRequest]
) -> tuple[list[AlterationRecord | None], list[AuditRow]]:
    journal = PostgresJournal(database)
    records = [await journal.alteration(request.alteration_id) for request in requests]
    return records, list((await journal.audit_rows(AuditQuery())).rows)


async def test_the_log_outlives_going_back_and_forth(
    audit_database: AuditDatabase, database: Database, tables: Tables
):
    requests = await write_every_kind(database)
    said = await what_the_log_says(database, requests)
    assert len(said[1]) == 6
    go_back(audit_database)
    assert await what_the_log_says(database, requests) == said
    run_as(audit_database.service_url, FIRST_EVENT)
    with pytest.raises(psycopg.errors.CheckViolation):
        run_as(audit_database.service_url, RECOVERY)
    migrate(audit_database.owner_url, audit_database.service_url)
    run_as(audit_database.service_url, RECOVERY)
    assert await what_the_log_says(database, requests) == said
    assert tables.count("entity_slot") == 0
    assert len(await write_every_kind(database)) == 5


async def test_an_alteration_that_is_open_in_the_first_version_can_be_concluded(
    audit_database: AuditDatabase, database: Database, tables: Tables
):
    journal, recovery = PostgresJournal(database), PostgresRecovery(database)
    requests = [request_of("alice"), request_of("bob")]
    for request in requests:
        await intend(journal, request)
    go_back(audit_database)
    migrate(audit_database.owner_url, audit_database.service_url)
    await journal.record_conclusion(concluded(requests[0]))
    entity = requests[1].entities[0].alteration.entity
    result = AlterationResult(entity, Outcome.APPLIED, True, {}, {"a": 1.0})
    found = Recovered(requests[1].alteration_id, 0, result, final=True, evidence={})
    for _ in range(2):
        await recovery.record_recovery([found])
    page = await journal.audit_rows(AuditQuery(outcome="applied"))
    assert len(page.rows) == 2
    assert tables.count("entity_state") == 0
