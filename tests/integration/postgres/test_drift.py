import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest

from app.domain.alterations import AlterationResult, Outcome, Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.localdev.postgres import LocalPostgres
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.locks import entity_hash
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.alterations.barrier import Barrier, CurrentValues
from app.service.drift import DriftWatch
from app.service.ports.audit_log import (
    AuditedState,
    AuditQuery,
    AuditRow,
    Drift,
    Recovered,
)
from app.service.runtime.clock import Patience
from tests.integration.postgres.calls import (
    AFTER,
    INSERT,
    Tables,
    concluded,
    found,
    request_of,
    stored,
)
from tests.testkit.counted_metrics import CountedMetrics
from tests.testkit.fake_ports import FakeBrokers
from tests.testkit.postgres import (
    CLUSTER,
    HOSTILE_NAMES,
    AuditDatabase,
    intend,
    intent_of,
    record_conclusion,
    record_intent,
)

SEEN = datetime(2026, 11, 21, 1, 2, 3, 456_000, UTC)


@pytest.fixture
def drift(database: Database) -> PostgresDriftJournal:
    return PostgresDriftJournal(database)


def entity_of(user: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": user})


def changed(
    user: str, before: Values, after: Values, version: int = 1, linked: str | None = None
) -> Drift:
    return Drift(entity_of(user), before, after, SEEN, version, linked)


async def baseline(
    drift: PostgresDriftJournal, cluster_id: str = CLUSTER
) -> dict[ClientQuotaEntity, AuditedState]:
    states = await drift.baseline(cluster_id)
    assert states is not None
    return dict(states)


async def rows(journal: PostgresJournal) -> Sequence[AuditRow]:
    return (await journal.audit_rows(AuditQuery(limit=10_000, action="drift"))).rows


async def test_what_the_first_scan_finds_is_no_drift(
    journal: PostgresJournal, drift: PostgresDriftJournal, tables: Tables
):
    assert await drift.baseline(CLUSTER) is None
    odd = {"a": math.inf, "b": 2.0**63, "c": 0.1, "\x00": 5e-324}
    quotas = {entity_of(name): odd for name in HOSTILE_NAMES} | {entity_of(None): AFTER}
    for _ in range(2):
        await drift.keep_baseline(CLUSTER, quotas)
    states = await baseline(drift)
    assert {entity: state.values for entity, state in states.items()} == quotas
    assert {state.version for state in states.values()} == {1}
    assert tables.count("audit_event") == 0
    assert await drift.baseline("another") is None


async def test_a_cluster_without_quotas_is_watched_too(drift: PostgresDriftJournal):
    await drift.keep_baseline(CLUSTER, {})
    assert await baseline(drift) == {}


async def test_our_own_alterations_are_the_baseline_where_there_are_any(
    journal: PostgresJournal, drift: PostgresDriftJournal
):
    request = request_of("alice")
    await intend(journal, request)
    await record_conclusion(journal, concluded(request))
    assert await drift.baseline(CLUSTER) is None
    await drift.keep_baseline(CLUSTER, {entity_of("alice"): {"x": 1.0}, entity_of("bob"): AFTER})
    states = await baseline(drift)
    assert {entity: state.values for entity, state in states.items()} == {
        entity_of("alice"): AFTER,
        entity_of("bob"): AFTER,
    }


async def test_the_first_scan_stores_ten_thousand_entities(drift: PostgresDriftJournal):
    quotas = {entity_of(f"user-{number}"): AFTER for number in range(10_001)}
    await drift.keep_baseline(CLUSTER, quotas)
    assert len(await baseline(drift)) == 10_001


async def test_drift_is_a_row_of_its_own_and_the_new_state(
    journal: PostgresJournal, drift: PostgresDriftJournal, tables: Tables
):
    await drift.keep_baseline(CLUSTER, {entity_of("alice"): {"a": 1.0, "b": 2.0, "n": math.nan}})
    after = {"b": 3.0, "c": 0.5, "n": math.nan}
    changes = [
        changed("alice", {"a": 1.0, "b": 2.0, "n": math.nan}, after),
        changed("bob", {}, {"z": 2.0**63}, version=0),
    ]
    assert set(await drift.record_drift(CLUSTER, changes)) == {entity_of("alice"), entity_of("bob")}
    found = {row.entity: row for row in await rows(journal)}
    row = found[entity_of("alice")]
    assert (row.principal, row.action, row.outcome) == ("unknown", "drift", "applied")
    assert row.reason == "first seen 2026-11-21T01:02:03.456+00:00"
    assert row.ops == [
        {"key": "a", "remove": True},
        {"key": "b", "value": 3},
        {"key": "c", "value": 0.5},
    ]
    assert row.before is not None
    assert row.after is not None
    assert (row.before["a"], row.before["b"]) == (1.0, 2.0)
    assert (set(row.after), row.after["c"]) == ({"b", "c", "n"}, 0.5)
    assert found[entity_of("bob")].after == {"z": 2.0**63}
    record = await stored(journal, row)
    assert record.concluded
    assert record.alteration.evidence["first_seen"] == "2026-11-21T01:02:03.456+00:00"
    assert [event for _, event, _ in record.history] == ["outcome"]
    states = await baseline(drift)
    assert states[entity_of("alice")].version == 2
    assert str(tables.state(request_of("alice")).changed_by) == row.alteration_id
    assert states[entity_of("bob")].version == 1
    assert tables.locked() == 0


async def test_an_entity_without_values_is_forgotten_after_an_hour(
    drift: PostgresDriftJournal, tables: Tables
):
    quotas = {entity_of("alice"): AFTER, entity_of("gone"): {}, entity_of("just gone"): {}}
    await drift.keep_baseline(CLUSTER, quotas)
    await drift.keep_baseline("another", quotas)
    tables.run(
        "update quota_entity set changed_at = changed_at - interval '1 hour' "
        """where entity <> '{"user":"just gone"}'"""
    )
    assert set(await baseline(drift)) == {entity_of("alice"), entity_of("just gone")}
    assert tables.audited() == 5
    back = changed("gone", {}, AFTER, version=0)
    assert await drift.record_drift(CLUSTER, [back]) == [entity_of("gone")]
    assert (await baseline(drift))[entity_of("gone")].values == AFTER


async def test_the_same_drift_is_recorded_once(
    journal: PostgresJournal, drift: PostgresDriftJournal
):
    await drift.keep_baseline(CLUSTER, {entity_of("alice"): AFTER})
    change = changed("alice", AFTER, {})
    assert await drift.record_drift(CLUSTER, [change]) == [entity_of("alice")]
    assert await drift.record_drift(CLUSTER, [change]) == []
    assert len(await rows(journal)) == 1


async def test_an_entity_with_an_alteration_in_flight_is_left_alone(
    journal: PostgresJournal, drift: PostgresDriftJournal
):
    await drift.keep_baseline(CLUSTER, {entity_of("alice"): {}, entity_of("bob"): {}})
    request = request_of("alice")
    await intend(journal, request)
    changes = [changed("alice", {}, AFTER), changed("bob", {}, AFTER)]
    assert await drift.record_drift(CLUSTER, changes) == [entity_of("bob")]
    await record_conclusion(journal, concluded(request))
    assert await drift.record_drift(CLUSTER, changes) == []
    assert [row.entity for row in await rows(journal)] == [entity_of("bob")]


@pytest.mark.parametrize("patience", [Patience(database_answer_s=6.0)])
async def test_an_entity_that_is_just_being_taken_is_left_alone_and_nobody_is_blamed(
    drift: PostgresDriftJournal, audit_database: AuditDatabase, caplog: pytest.LogCaptureFixture
):
    await drift.keep_baseline(CLUSTER, {entity_of("alice"): {}})
    change = changed("alice", {}, AFTER)
    with psycopg.connect(audit_database.service_url) as other:
        other.execute(INSERT, (CLUSTER, entity_hash(entity_of("alice"))))
        assert await drift.record_drift(CLUSTER, [change]) == []
        other.rollback()
    assert "locked" not in caplog.text
    assert await drift.record_drift(CLUSTER, [change]) == [entity_of("alice")]


async def test_a_state_that_came_and_went_since_the_baseline_was_read_is_no_drift(
    journal: PostgresJournal, drift: PostgresDriftJournal
):
    await drift.keep_baseline(CLUSTER, {entity_of("alice"): {}})
    for after in (AFTER, {}):
        request = request_of("alice")
        await intend(journal, request)
        await record_conclusion(journal, concluded(request, after=after))
    assert await drift.record_drift(CLUSTER, [changed("alice", {}, AFTER)]) == []
    assert await rows(journal) == []


async def test_drift_of_many_entities_is_recorded(
    journal: PostgresJournal, drift: PostgresDriftJournal, tables: Tables
):
    await drift.keep_baseline(CLUSTER, {})
    changes = [changed(f"user-{number}", {}, AFTER, version=0) for number in range(1000)]
    assert len(await drift.record_drift(CLUSTER, changes)) == 1000
    assert {row.entity for row in await rows(journal)} == {change.entity for change in changes}
    assert len(await baseline(drift)) == 1000
    assert tables.locked() == 0


@pytest.mark.parametrize("user", ["alice", "a\0"])
async def test_a_late_apply_is_in_both_histories(
    journal: PostgresJournal, drift: PostgresDriftJournal, recovery: PostgresRecovery, user: str
):
    old = request_of("bob", user)
    await intend(journal, old)
    await record_conclusion(journal, concluded(old, Outcome.UNKNOWN, None))
    await recovery.record_recovery([found(old, Outcome.NOT_APPLIED, final=True, ordinal=1)])
    change = changed(user, {}, AFTER, version=0, linked=old.alteration_id)
    await drift.record_drift(CLUSTER, [change])
    (row,) = await rows(journal)
    assert row.reason is not None
    assert row.reason.endswith(f"; applied late by alteration {old.alteration_id}")
    record = await stored(journal, old)
    assert [item.outcome.value for item in record.results.values()] == ["unknown", "not_applied"]
    assert record.history[-1][1:] == (
        "recovery",
        f"seen to be applied after all, recorded as {row.alteration_id} for {entity_of(user)}",
    )
    page = await journal.audit_rows(AuditQuery(outcome="not_applied"))
    assert [item.alteration_id for item in page.rows] == [old.alteration_id]


async def test_what_may_be_applied_late_can_be_asked_for(
    journal: PostgresJournal, drift: PostgresDriftJournal, recovery: PostgresRecovery
):
    outcomes = {
        "refused": Outcome.REFUSED,
        "held back": Outcome.NOT_APPLIED,
        "unknown": Outcome.UNKNOWN,
        "applied": Outcome.APPLIED,
        "not sent": Outcome.NOT_SENT,
    }
    ids = {}
    for user, outcome in outcomes.items():
        request = request_of(user)
        ids[user] = request.alteration_id
        await intend(journal, request)
        await record_conclusion(journal, concluded(request, outcome))
    for user, outcome in (("found", Outcome.APPLIED), ("other", Outcome.OBSERVED_OTHER)):
        request = request_of("another", user)
        ids[user] = request.alteration_id
        await intend(journal, replace(request, changes=request.changes[1:]))
        result = AlterationResult(entity_of(user), outcome, True, {"x": 1.0}, AFTER)
        recovered = Recovered(request.alteration_id, 1, result, final=True, evidence={})
        await recovery.record_recovery([recovered])
    new = request_of("unknown")
    await record_intent(journal, intent_of(new, supersedes=ids["unknown"]))
    asked = [entity_of(user) for user in ids] + [entity_of("nobody")]
    doubtful = await drift.recent_doubtful(CLUSTER, asked)
    late = ("refused", "held back", "unknown", "found", "other")
    assert {entity: [*found] for entity, found in doubtful.items()} == {
        entity_of(user): [ids[user]] for user in late
    }
    assert doubtful[entity_of("other")][ids["other"]] == request.changes[1]
    assert await drift.recent_doubtful(CLUSTER, [entity_of("nobody")]) == {}
    assert await drift.recent_doubtful("another", asked) == {}


@pytest.fixture
def two(connect: Callable[..., Database]) -> tuple[Database, Database]:
    return connect(), connect()


async def until_leading(database: Database) -> None:
    async with asyncio.timeout(30):
        while not await PostgresDriftJournal(database).try_lead(CLUSTER):
            await asyncio.sleep(0.01)


async def test_one_process_leads_until_it_ends(
    two: tuple[Database, Database], connect: Callable[..., Database]
):
    first, second = (PostgresDriftJournal(database) for database in two)
    for _ in range(3):
        assert await first.try_lead(CLUSTER)
        assert not await second.try_lead(CLUSTER)
    await two[0].close()
    await until_leading(two[1])
    assert not await PostgresDriftJournal(connect()).try_lead(CLUSTER)


async def test_who_loses_its_connection_leads_again_only_if_nobody_else_does(
    two: tuple[Database, Database], postgres: LocalPostgres
):
    first, second = (PostgresDriftJournal(database) for database in two)
    assert await first.try_lead(CLUSTER)
    postgres.kill()
    postgres.start()
    assert await second.try_lead(CLUSTER)
    assert not await first.try_lead(CLUSTER)
    await two[1].close()
    await until_leading(two[0])


async def test_nothing_recorded_leaves_an_answer_of_nothing(drift: PostgresDriftJournal):
    assert await drift.record_drift(CLUSTER, []) == []


async def test_who_cannot_reach_the_cluster_lets_another_watch(two: tuple[Database, Database]):
    brokers = FakeBrokers([]), FakeBrokers([])
    journals = [PostgresDriftJournal(database) for database in two]
    blind, seeing = (
        DriftWatch(each, Barrier(each, CurrentValues(each)), journal, CountedMetrics())
        for each, journal in zip(brokers, journals, strict=True)
    )
    brokers[0].reachable = False
    with pytest.raises(NotSentError):
        await blind.round()
    await seeing.round()
    assert await journals[1].baseline("fake") == {}
    assert not await journals[0].try_lead("fake")
