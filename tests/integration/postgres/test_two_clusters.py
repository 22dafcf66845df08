"""Two clusters on one database: each has its own record, and nobody concludes the other's."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.domain.alterations import Outcome
from app.domain.authorization import AuthorizerSettings
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import NotFoundError
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.auth.authorize import AuditTrail, AuthorizationPolicy, ClusterAuthorizer
from app.service.ports.alterations import Alteration, IdempotencyKey
from app.service.ports.audit_log import (
    AuditQuery,
)
from tests.integration.postgres.calls import AFTER, Tables, concluded, in_doubt, opened, request_of
from tests.integration.postgres.test_drift import changed
from tests.testkit.fake_ports import FakeBrokers
from tests.testkit.postgres import ALICE, CLUSTER, intent_of, record_conclusion, record_intent

OTHER = "b3RoZXIgY2x1c3RlciBpZA"
AUDITOR = Caller("User:auditor", "192.0.2.8", "bearer")


def elsewhere(*users: str) -> Alteration:
    return replace(request_of(*users), cluster_id=OTHER)


def past_sending(tables: Tables) -> None:
    """Let every lock be five seconds past the time by which its alteration was sent."""
    tables.run(
        "update quota_entity set handed_over_by = now() - interval '5 s', "
        "taken_at = least(taken_at, now() - interval '5 s')"
    )


async def test_recovery_claims_what_is_open_on_its_own_cluster(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    unknown, orphan = await in_doubt(journal, "alice"), await opened(journal, "bob")
    past_sending(tables)
    assert await recovery.claim_open(OTHER, "them", limit=100) == []
    assert (await recovery.open_intents(OTHER)).number == 0
    assert (await recovery.open_intents(CLUSTER)).number == 2
    asked = map(recovery.open_intents, (OTHER, CLUSTER, CLUSTER))
    assert [each.number for each in await asyncio.gather(*asked)] == [0, 2, 2]
    claimed = await recovery.claim_open(CLUSTER, "me", limit=100)
    assert {claim.alteration_id for claim in claimed} == {
        unknown.alteration_id,
        orphan.alteration_id,
    }
    await recovery.give_back(OTHER, "me")
    assert await recovery.claim_open(CLUSTER, "you", limit=100) == []
    await recovery.give_back(CLUSTER, "me")
    assert len(await recovery.claim_open(CLUSTER, "you", limit=100)) == 2


async def test_a_heartbeat_on_one_cluster_says_nothing_on_the_other(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    await opened(journal, "alice", owner="worker")
    past_sending(tables)
    await recovery.beat(OTHER, "worker")
    assert len(await recovery.claim_open(CLUSTER, "me", limit=100)) == 1
    await recovery.give_back(CLUSTER, "me")
    await asyncio.gather(*(recovery.beat(name, "worker") for name in (CLUSTER, OTHER, CLUSTER)))
    assert await recovery.claim_open(CLUSTER, "me", limit=100) == []


async def test_each_cluster_has_a_watch_for_drift(connect: Callable[..., Database]):
    here, there, late = (PostgresDriftJournal(connect()) for _ in range(3))
    for _ in range(2):
        assert await here.try_lead(CLUSTER)
        assert await there.try_lead(OTHER)
        assert not await late.try_lead(CLUSTER)
        assert not await late.try_lead(OTHER)
    await there.let_others_lead(OTHER)
    assert not await late.try_lead(CLUSTER)
    assert await late.try_lead(OTHER)


async def test_drift_of_one_cluster_leaves_the_other_as_it_is(
    journal: PostgresJournal, database: Database
):
    drift, alice = PostgresDriftJournal(database), ClientQuotaEntity.of({"user": "alice"})
    for cluster_id in (CLUSTER, OTHER):
        await drift.keep_baseline(cluster_id, {alice: AFTER})
    late = await in_doubt(journal, "alice")
    await record_conclusion(journal, concluded(late, Outcome.UNKNOWN, None))
    assert await drift.recent_doubtful(OTHER, [alice]) == {}
    assert len(await drift.recent_doubtful(CLUSTER, [alice])) == 1
    assert await drift.record_drift(OTHER, [changed("alice", AFTER, {})]) == [alice]
    states = [await drift.baseline(cluster_id) for cluster_id in (CLUSTER, OTHER)]
    assert [dict(state or {})[alice].values for state in states] == [AFTER, {}]


async def test_an_entity_has_a_lock_and_a_state_on_each_cluster(
    journal: PostgresJournal, tables: Tables
):
    here, there = request_of("alice"), elsewhere("alice")
    for request in (here, there):
        await record_intent(journal, intent_of(request))
    assert tables.locked() == 2
    await record_conclusion(journal, concluded(here))
    assert list(tables.locks(there)) == [0]
    await record_conclusion(journal, concluded(there, Outcome.NOT_APPLIED))
    for again, states in ((request_of("alice"), [AFTER]), (elsewhere("alice"), [])):
        intent = await record_intent(journal, intent_of(again))
        assert list((await journal.recent_values(intent)).values()) == states


async def test_a_key_belongs_to_one_principal_on_one_cluster(journal: PostgresJournal):
    key = IdempotencyKey("INC-4711", b"f" * 32)
    here, there = request_of("alice"), elsewhere("alice")
    for request in (here, there):
        key_hash = key.hash_for(ALICE.principal, request.cluster_id)
        assert await journal.stored_key(key_hash) is None
        await record_intent(journal, intent_of(request, key=key))
    for request in (here, there):
        stored = await journal.stored_key(key.hash_for(ALICE.principal, request.cluster_id))
        assert stored is not None
        assert stored.alteration_id == request.alteration_id


async def test_what_supersedes_nothing_here_leaves_the_key_of_the_other_cluster_alone(
    journal: PostgresJournal, tables: Tables
):
    old = request_of("alice")
    key = IdempotencyKey("INC-4711", b"f" * 32)
    await record_intent(journal, intent_of(old, key=key))
    await record_conclusion(journal, concluded(old, Outcome.UNKNOWN, None))
    before = tables.run("select * from idempotency")
    new = elsewhere("alice")
    await record_intent(journal, intent_of(new, supersedes=old.alteration_id))
    assert tables.run("select * from idempotency") == before
    assert list(tables.locks(old)) == [0]


def trail_of(journal: PostgresJournal, cluster_id: str) -> AuditTrail:
    """Return the audit trail of a service of a cluster; ``auditor`` sees all rows of that."""
    policy = AuthorizationPolicy(AuthorizerSettings(), auditors=frozenset({AUDITOR.principal}))
    no_acls: Any = None
    authorizer = ClusterAuthorizer(no_acls, policy)
    return AuditTrail(journal, authorizer, FakeBrokers([], cluster_id))


@pytest.fixture
async def logged(journal: PostgresJournal) -> Mapping[str, Alteration]:
    """An applied and an open alteration of each cluster, all of them alice's; return the open."""
    requests = {CLUSTER: request_of("alice"), OTHER: elsewhere("alice")}
    for cluster_id, request in requests.items():
        done = replace(request_of("bob"), cluster_id=cluster_id)
        for item in (done, request):
            await record_intent(journal, intent_of(item))
        await record_conclusion(journal, concluded(done))
        await journal.record_final(
            replace(request_of("carol"), cluster_id=cluster_id, action="validate"),
            concluded(request_of("carol"), Outcome.REFUSED, None).results,
        )
    return requests


@pytest.mark.parametrize("caller", [ALICE, AUDITOR])
@pytest.mark.parametrize(
    ("query", "number"),
    [
        (AuditQuery(), 3),
        (AuditQuery(outcome="applied"), 1),
        (AuditQuery(outcome="unknown"), 1),
        (AuditQuery(outcome="refused"), 1),
        (AuditQuery(action="alter"), 2),
    ],
)
async def test_the_log_displays_the_rows_of_its_own_cluster(
    journal: PostgresJournal,
    logged: Mapping[str, Alteration],
    caller: Caller,
    query: AuditQuery,
    number: int,
):
    for cluster_id in logged:
        page = await trail_of(journal, cluster_id).rows(caller, query)
        assert [row.cluster_id for row in page.rows] == [cluster_id] * number


@pytest.mark.parametrize("caller", [ALICE, AUDITOR])
async def test_an_alteration_is_found_by_its_own_cluster(
    journal: PostgresJournal, logged: Mapping[str, Alteration], caller: Caller
):
    here, there = trail_of(journal, CLUSTER), trail_of(journal, OTHER)
    own = logged[CLUSTER]
    assert (await here.alteration(caller, own.alteration_id)).alteration == own
    with pytest.raises(NotFoundError):
        await there.alteration(caller, own.alteration_id)
