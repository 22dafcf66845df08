"""Plans and owners in Postgres: owners follow what the log says, whoever writes it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    EntityBusyError,
    ExpectationFailedError,
    OwnerConflictError,
    QuotaError,
)
from app.domain.plans import Conflict, Holding, PlannedChange, Unpruned, WhyKept
from app.postgres import plans as postgres_plans
from app.postgres.audit_log import MAX_BATCH_ROWS, PostgresJournal, append
from app.postgres.payload import outcome_event
from app.postgres.plans import PostgresPlans
from app.postgres.pool import Database, Lease
from app.postgres.recovery import PostgresRecovery
from app.postgres.schema import keep_house
from app.service.ports.alterations import Alteration
from app.service.ports.plans import PlanApplication, StoredPlan
from app.service.recovery import FINAL_AFTER_S
from app.service.runtime.clock import new_alteration_id
from tests.integration.postgres.calls import (
    AFTER,
    Tables,
    claimed,
    concluded,
    found,
    request_of,
    until_a_call_waits,
)
from tests.testkit.postgres import (
    CLUSTER,
    HOSTILE_NAMES,
    AuditDatabase,
    audit_change,
    audit_request,
    intent_of,
    record_conclusion,
    record_intent,
)

P, C = "producer_byte_rate", "consumer_byte_rate"


@pytest.fixture
def plans(database: Database) -> PostgresPlans:
    """The plans of the test's database."""
    return PostgresPlans(database)


def sets(value: int = 1024, key: str = P) -> tuple[Op, ...]:
    return (Op(key, Decimal(value)),)


Claimed = tuple[Alteration, Alteration]


def owned(user: str, owner: str, holder: str | None, *ops: Op, force: bool = False) -> Claimed:
    entity = audit_change(0, {"user": user}, ops=ops)
    request = audit_request(entity, action="apply_plan")
    holders = {entity.entity: {op.key: holder for op in ops}}
    claim = replace(intent_of(request), plan=PlanApplication("p", owner, force, holders))
    return request, claim


async def holders(plans: PostgresPlans, user: str) -> dict[str, Holding]:
    entity = ClientQuotaEntity.of({"user": user})
    return dict((await plans.holdings(CLUSTER, "nobody", [entity])).get(entity, {}))


async def settled(journal: PostgresJournal, claimed: Claimed) -> None:
    request, claim = claimed
    await record_intent(journal, claim)
    await record_conclusion(journal, concluded(request))


@pytest.mark.parametrize("user", HOSTILE_NAMES)
async def test_an_owner_holds_what_was_applied_and_gives_up_what_was_removed(
    journal: PostgresJournal, plans: PostgresPlans, user: str
):
    request, claim = owned(user, "team", None, *sets(), *sets(7, C))
    await record_intent(journal, claim)
    assert await holders(plans, user) == {}
    await record_conclusion(journal, concluded(request))
    assert await holders(plans, user) == {P: Holding("team", 1024.0), C: Holding("team", 7.0)}
    entity = request.changes[0].entity
    assert set(await plans.holdings(CLUSTER, "team", [])) == {entity}
    assert await plans.holdings("another", "team", [entity]) == {}
    held = {entity: {P: Holding("team", 1024.0), C: Holding("team", 7.0)}}
    for owners in (None, ["team"], ["team", "another"]):
        assert await plans.owned(CLUSTER, owners) == held
    for owners in (["another"], ["te\0am"], [""], []):
        assert await plans.owned(CLUSTER, owners) == {}
    assert await plans.owned("another", None) == {}
    await settled(journal, owned(user, "team", "team", Op(P, remove=True), *sets(8, C)))
    assert await holders(plans, user) == {C: Holding("team", 8.0)}


@pytest.mark.parametrize(
    "outcome", [item for item in Outcome if item not in {Outcome.APPLIED, Outcome.UNKNOWN}]
)
async def test_nobody_holds_what_was_not_applied(
    journal: PostgresJournal, plans: PostgresPlans, tables: Tables, outcome: Outcome
):
    request, claim = owned("alice", "team", None, *sets())
    await record_intent(journal, claim)
    await record_conclusion(journal, concluded(request, outcome))
    assert await holders(plans, "alice") == {}
    assert tables.locked() == 0


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.APPLIED, {P: Holding("team", 1024.0)}), (Outcome.NOT_APPLIED, {})],
)
async def test_what_recovery_finds_decides_who_holds_it(
    journal: PostgresJournal,
    plans: PostgresPlans,
    recovery: PostgresRecovery,
    outcome: Outcome,
    expected: dict[str, Holding],
):
    request, claim = owned("alice", "team", None, *sets())
    await record_intent(journal, claim)
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None))
    for final in (False, True):
        assert await holders(plans, "alice") == {}
        await recovery.record_recovery([found(request, outcome, final=final)])
    assert await holders(plans, "alice") == expected


async def test_what_was_superseded_is_nobody_s(journal: PostgresJournal, plans: PostgresPlans):
    request, claim = owned("alice", "team", None, *sets())
    await record_intent(journal, claim)
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None))
    taking = audit_request(audit_change(0, {"user": "alice"}))
    await record_intent(journal, intent_of(taking, supersedes=request.alteration_id))
    await record_conclusion(journal, concluded(taking))
    assert await holders(plans, "alice") == {}


async def test_an_alteration_without_a_plan_leaves_owners_alone(
    journal: PostgresJournal, plans: PostgresPlans
):
    await settled(journal, owned("alice", "team", None, *sets()))
    request = audit_request(audit_change(0, {"user": "alice"}, ops=sets(5)))
    await settled(journal, (request, intent_of(request)))
    assert await holders(plans, "alice") == {P: Holding("team", 1024.0)}


async def test_owners_are_as_the_plan_saw_them_or_nothing_is_claimed(
    journal: PostgresJournal, plans: PostgresPlans, tables: Tables
):
    await settled(journal, owned("alice", "first", None, *sets()))
    cases = [
        (owned("alice", "second", None, *sets(2)), OwnerConflictError),
        (owned("alice", "second", None, *sets(2), force=True), ExpectationFailedError),
        (owned("alice", "second", "third", *sets(2)), OwnerConflictError),
        (owned("alice", "first", None, *sets(2)), ExpectationFailedError),
        (owned("bob", "first", "first", Op(P, remove=True)), ExpectationFailedError),
    ]
    for (request, claim), error in cases:
        with pytest.raises(error):
            await record_intent(journal, claim)
        assert await journal.alteration(request.alteration_id) is None
    assert tables.locked() == 0
    await settled(journal, owned("alice", "second", "first", *sets(2), force=True))
    assert await holders(plans, "alice") == {P: Holding("second", 2.0)}


async def test_a_conclusion_that_is_rolled_back_gives_nobody_anything(
    journal: PostgresJournal, plans: PostgresPlans, tables: Tables
):
    request, claim = owned("alice", "team", None, *sets())
    await record_intent(journal, claim)
    tables.run("alter table quota_owner add constraint no check (key <> 'producer_byte_rate')")
    with pytest.raises(QuotaError, match="fault of this service"):
        await record_conclusion(journal, concluded(request))
    assert len(tables.locks(request)) == 1
    tables.run("alter table quota_owner drop constraint no")
    await record_conclusion(journal, concluded(request))
    assert await holders(plans, "alice") == {P: Holding("team", 1024.0)}


async def test_the_claims_of_a_large_plan_are_settled_at_once(
    journal: PostgresJournal, tables: Tables
):
    entities = [
        audit_change(n, {"user": f"user-{n}"}, ops=sets()) for n in range(MAX_BATCH_ROWS + 100)
    ]
    request = audit_request(*entities, action="apply_plan")
    holders = {entity.entity: {P: None} for entity in entities}
    claim = replace(intent_of(request), plan=PlanApplication("p", "team", False, holders))
    await record_intent(journal, claim)
    conclusion = concluded(request)
    refused = replace(conclusion.results[7], outcome=Outcome.REFUSED, after=None)
    await record_conclusion(
        journal, replace(conclusion, results={**conclusion.results, 7: refused})
    )
    assert tables.count("quota_owner") == len(entities) - 1
    assert tables.locked() == 0
    triggers = (
        "select 1 from pg_trigger where tgrelid = 'quota_entity'::regclass and not tgisinternal"
    )
    assert tables.run(triggers) == []


async def rested(
    journal: PostgresJournal, users: str, *beside: str, owner: str = "owner"
) -> Alteration:
    """Return an alteration that has begun, and rests on users beside its own."""
    request = request_of(*users)
    await record_intent(journal, intent_of(request, owner, rests_on=beside))
    return request


async def test_what_a_plan_rests_on_is_held_until_all_of_it_is_concluded(
    journal: PostgresJournal, tables: Tables
):
    """Also from another plan that rests on it; the refusal says how long that can last."""
    request = await rested(journal, "ab", "x", "y")
    altering, planned = request_of("x"), request_of("c")
    claims = [intent_of(altering), intent_of(planned, rests_on=["y"])]
    for claim in claims:
        with pytest.raises(EntityBusyError) as raised:
            await record_intent(journal, claim)
        assert raised.value.alteration_id == request.alteration_id
        assert raised.value.retry_after_s == 1
    applied, unknown = concluded(request), concluded(request, Outcome.UNKNOWN, None)
    results = {0: applied.results[0], 1: unknown.results[1]}
    await record_conclusion(journal, replace(applied, results=results))
    assert list(tables.locks(request)) == [1]
    assert list(tables.locks(request, rests_on=True)) == [0, 1]
    for claim in claims:
        with pytest.raises(EntityBusyError) as raised:
            await record_intent(journal, claim)
        assert raised.value.retry_after_s is not None
        assert 1 < raised.value.retry_after_s <= FINAL_AFTER_S


async def test_an_intent_gets_the_last_state_of_what_it_rests_on(journal: PostgresJournal):
    before = request_of("x")
    await record_intent(journal, intent_of(before))
    await record_conclusion(journal, concluded(before))
    request = request_of("a")
    intent = await record_intent(journal, intent_of(request, rests_on=["x", "y"]))
    assert list((await journal.recent_values(intent)).values()) == [AFTER]


async def test_recovery_does_not_look_at_what_is_only_rested_on_and_frees_it_in_the_end(
    journal: PostgresJournal, database: Database, tables: Tables
):
    recovery = PostgresRecovery(database, final_after_s=0)
    request = await rested(journal, "ab", "x", owner="dead")
    tables.age(request, 60.0)
    assert (await recovery.open_intents(CLUSTER)).number == 2
    assert [claim.key for claim in await claimed(recovery)] == [
        (request.alteration_id, 0),
        (request.alteration_id, 1),
    ]
    assert tables.locks(request, rests_on=True)[0].claimed_by is None
    for ordinal, left, beside in ((0, [1], [0]), (1, [], [])):
        ended = found(request, Outcome.NOT_APPLIED, final=True, ordinal=ordinal)
        assert await recovery.record_recovery([ended]) == {}
        assert list(tables.locks(request)) == left
        assert list(tables.locks(request, rests_on=True)) == beside


async def test_of_two_that_conclude_halves_at_once_the_later_frees_what_they_rest_on(
    database: Database, journal: PostgresJournal, tables: Tables, audit_database: AuditDatabase
):
    """The first has freed its half and has not committed when the second comes to the end."""
    request = await rested(journal, "ab", "x")
    whole = concluded(request)
    halves = [replace(whole, results={n: result}) for n, result in whole.results.items()]
    is_freed, goes_on = asyncio.Event(), asyncio.Event()

    async def conclude_first(lease: Lease) -> None:
        frees = {request.alteration_id: False}
        await append([outcome_event(halves[0])], lease, frees, commit=False)
        is_freed.set()
        await goes_on.wait()

    first = asyncio.create_task(database.writing.run(conclude_first))
    await is_freed.wait()
    second = asyncio.create_task(record_conclusion(journal, halves[1]))
    await until_a_call_waits(audit_database)
    goes_on.set()
    await asyncio.gather(first, second)
    assert tables.locked() == 0


async def test_who_supersedes_all_of_a_plan_frees_what_it_rests_on(
    journal: PostgresJournal, tables: Tables
):
    old = await rested(journal, "ab", "x")
    await record_conclusion(journal, concluded(old, Outcome.UNKNOWN, None))
    for user, left, beside in (("a", [1], [0]), ("b", [], [])):
        new = request_of(user)
        await record_intent(journal, intent_of(new, supersedes=old.alteration_id))
        assert list(tables.locks(old)) == left
        assert list(tables.locks(old, rests_on=True)) == beside


async def test_many_entities_that_a_plan_rests_on_are_taken_and_freed(
    journal: PostgresJournal, tables: Tables
):
    request = await rested(journal, "a", *(f"user-{n}" for n in range(10_000)))
    assert len(tables.locks(request)) == 1
    assert len(tables.locks(request, rests_on=True)) == 10_000
    await record_conclusion(journal, concluded(request))
    assert tables.locked() == 0


def a_plan(user: str = "alice", age: timedelta = timedelta()) -> StoredPlan:
    entity = ClientQuotaEntity.of({"user": user, "client-id": None})
    change = PlannedChange(
        ClientQuotaAlteration(entity, (Op(P, Decimal("0.1")), Op(C, remove=True))),
        {C: float("inf"), P: 1e300},
        {P: 0.1},
        {P: "other", C: None},
    )
    created = datetime(2026, 11, 21, 1, 2, 3, 456000, tzinfo=UTC) - age
    return StoredPlan(
        plan_id=new_alteration_id(),
        cluster_id=CLUSTER,
        author="User:bob",
        owner="team \U0001f600",
        prune=True,
        adopt=False,
        scope=("user^=team-",),
        created_at=created,
        expires_at=created + timedelta(hours=24),
        base="0f" * 32,
        changes=(replace(change, impact={"summary": "Less.", "keys": {P: {"factor": 0.5}}}),),
        conflicts=(Conflict(entity, P, "other", 1.0, 1e300, 0.1),),
        unpruned=(Unpruned(entity, "k", float("inf"), WhyKept.CHANGED_SINCE),),
        rests_on={entity: {P: 1e300, C: None, "k": float("inf")}},
    )


@pytest.mark.parametrize("user", HOSTILE_NAMES)
async def test_a_plan_is_read_as_it_was_stored(plans: PostgresPlans, user: str):
    plan = a_plan(user)
    await plans.keep(plan)
    assert await plans.plan(plan.cluster_id, plan.plan_id) == plan
    assert await plans.plan("another", plan.plan_id) is None
    assert await plans.plan(plan.cluster_id, plan.plan_id.upper()) is None
    assert await plans.plan(plan.cluster_id, "nonsense") is None


@pytest.mark.parametrize("bound", ["MAX_OWN_PLANS", "MAX_OWN_PLAN_BYTES"])
async def test_the_plans_of_one_principal_are_bounded(
    plans: PostgresPlans, monkeypatch: pytest.MonkeyPatch, bound: str
):
    monkeypatch.setattr(postgres_plans, bound, 2 if bound == "MAX_OWN_PLANS" else 2_000)
    stored = [await plans.keep(a_plan()) for _ in range(9)]
    assert stored == [True] * sum(stored) + [False] * (9 - sum(stored))
    assert 2 <= sum(stored) < 9
    assert await plans.keep(replace(a_plan(), author="User:carol"))
    assert await plans.keep(replace(a_plan(), cluster_id="another"))
    later = a_plan().created_at + timedelta(hours=24)
    assert await plans.keep(
        replace(a_plan(), created_at=later, expires_at=later + timedelta(hours=24))
    )


async def test_plans_are_forgotten_a_day_after_they_expire(
    plans: PostgresPlans, database: Database, tables: Tables
):
    for plan in (a_plan(), a_plan()):
        await plans.keep(plan)
    update = "update quota_plan set expires_at = now() - "
    tables.run(update + "interval '23 hours'")
    await keep_house(database)
    assert tables.count("quota_plan") == 2
    tables.run(update + "interval '25 hours' where plan_id = %(id)s", id=plan.plan_id)
    await keep_house(database)
    assert tables.count("quota_plan") == 1
