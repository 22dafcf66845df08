"""Who has an entity, until when, and what the next one learns."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest

from app.domain.alterations import AlterationResult, Outcome
from app.domain.budgets import Budget
from app.domain.errors import EntityBusyError
from app.postgres.audit_log import MAX_BATCH_ROWS, PostgresJournal
from app.postgres.locks import entity_hash
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.ports.alterations import Alteration, Conclusion, IdempotencyKey
from app.service.ports.audit_log import (
    AuditQuery,
    StoredKey,
)
from app.service.ports.brokers import STANDSTILL_S
from tests.integration.postgres.calls import (
    AFTER,
    FREE,
    INSERT,
    Tables,
    concluded,
    found,
    hash_of,
    holder_of,
    in_doubt,
    request_of,
    run_as,
    stored,
    take,
    until_a_call_waits,
    until_connected,
)
from tests.testkit.kafka import DEADLINE_S
from tests.testkit.postgres import (
    CLUSTER,
    AuditDatabase,
    audit_change,
    audit_request,
    intent_of,
    record_conclusion,
    record_intent,
)

KEY = IdempotencyKey("k", b"f" * 32)
DEFINITE = (Outcome.APPLIED, Outcome.REFUSED, Outcome.NOT_APPLIED, Outcome.NOT_SENT)


async def test_an_entity_belongs_to_one_alteration_until_that_is_concluded(
    journal: PostgresJournal, tables: Tables
):
    for outcome in DEFINITE:
        first, second = request_of("alice"), request_of("alice")
        await take(journal, first)
        assert await holder_of(journal, second) == first.alteration_id
        await record_conclusion(journal, concluded(first, outcome))
        await take(journal, second)
        await record_conclusion(journal, concluded(second, outcome))
    assert tables.locked() == 0


async def test_a_request_takes_all_its_locks_or_writes_nothing(
    journal: PostgresJournal, tables: Tables
):
    first = request_of("b")
    await take(journal, first)
    before = tables.count("audit_event")
    several = request_of("a", "b", "c")
    with pytest.raises(EntityBusyError):
        await record_intent(journal, intent_of(several, key=KEY))
    assert await journal.alteration(several.alteration_id) is None
    assert await journal.stored_key(hash_of(KEY)) is None
    assert tables.count("audit_event") == before
    assert tables.locked() == 1
    await take(journal, request_of("a", "c"))


async def test_a_budget_belongs_to_one_alteration_until_nothing_of_that_is_in_doubt(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    budget = Budget("team", {"producer_byte_rate": Decimal(1)}, "a")
    first, second = (replace(request_of(user), budgets=(budget,)) for user in ("a-1", "a-2"))
    await take(journal, first)
    with pytest.raises(EntityBusyError, match=r"of \{budget=team\} is in flight"):
        await take(journal, second)
    await take(journal, request_of("a-3"))
    await record_conclusion(journal, concluded(first, Outcome.UNKNOWN, None))
    with pytest.raises(EntityBusyError):
        await take(journal, second)
    await recovery.record_recovery([found(first, Outcome.APPLIED, final=True)])
    await take(journal, second)
    await record_conclusion(journal, concluded(second))
    (lock,) = tables.run("select * from quota_entity where entity like '%%budget%%'")
    assert (lock.alteration_id, lock.version) == (None, 0)


async def test_what_was_applied_to_others_of_a_budget_is_recent_too(journal: PostgresJournal):
    before = request_of("a-1", "b-1")
    await take(journal, before)
    await record_conclusion(journal, concluded(before))
    budget = Budget("team", {"producer_byte_rate": Decimal(1)}, "a")
    intent = await take(journal, replace(request_of("a-2"), budgets=(budget,)))
    assert await journal.recent_values(intent) == {before.changes[0].entity: AFTER}


async def test_an_alteration_is_listed_as_long_as_it_holds_a_lock(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = request_of("a", "b")
    await record_intent(journal, intent_of(request, key=KEY, rests_on=["beside"]))
    hashes = sorted(row.entity_hash for row in tables.run("select entity_hash from quota_entity"))
    (listed,) = tables.run("select * from open_alteration")
    assert (str(listed.alteration_id), listed.cluster_id) == (request.alteration_id, CLUSTER)
    assert listed.entity_hashes == hashes
    with pytest.raises(EntityBusyError):
        await take(journal, request_of("b", "c"))
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None))
    await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=True)])
    assert (tables.count("open_alteration"), tables.count("held_entity")) == (1, 2)
    await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=True, ordinal=1)])
    assert (tables.count("open_alteration"), tables.locked()) == (0, 0)


async def test_nearly_no_lock_that_is_taken_or_freed_adds_to_an_index(
    database: Database, journal: PostgresJournal, tables: Tables
):
    """Postgres calls it a heap-only update: no indexed column changes, and the page has space."""
    for _ in range(3):
        request = request_of(*map(str, range(MAX_BATCH_ROWS)))
        await take(journal, request)
        await record_conclusion(journal, concluded(request))
    await database.writing.rows("select pg_stat_force_next_flush()")
    query = (
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'quota_entity'"
    )
    (row,) = tables.run(query)
    assert row.n_tup_upd == 5 * MAX_BATCH_ROWS
    assert row.n_tup_hot_upd >= 0.9 * row.n_tup_upd


async def test_a_request_without_entities_takes_no_lock(journal: PostgresJournal, tables: Tables):
    request = audit_request(action="apply_plan")
    intent = await record_intent(journal, intent_of(request, key=KEY))
    assert await journal.recent_values(intent) == {}
    stored_key = await journal.stored_key(hash_of(KEY))
    assert stored_key == StoredKey(request.alteration_id, KEY.fingerprint)
    record = await stored(journal, request)
    assert (record.concluded, record.results, record.alteration.action) == (True, {}, "apply_plan")
    await record_conclusion(journal, concluded(request))
    assert (tables.locked(), tables.audited()) == (0, 0)


async def test_an_outcome_without_a_lock_leaves_no_state(journal: PostgresJournal, tables: Tables):
    request = request_of("alice")
    await take(journal, request)
    tables.run(FREE)
    await record_conclusion(journal, concluded(request))
    assert tables.audited() == 0


async def test_the_next_intent_gets_what_was_applied_last(journal: PostgresJournal, tables: Tables):
    first, second, third = (request_of("alice", "bob") for _ in range(3))
    assert await journal.recent_values(await take(journal, first)) == {}
    alice, bob = (entity.entity for entity in first.changes)
    results = {
        0: AlterationResult(alice, Outcome.APPLIED, True, {}, {"a": 1.5, "b": 2.0**63}),
        1: AlterationResult(bob, Outcome.REFUSED, False, {}, {}),
    }
    await record_conclusion(journal, Conclusion(first.alteration_id, results))
    recent = await journal.recent_values(await take(journal, second))
    assert recent == {alice: {"a": 1.5, "b": 2.0**63}}
    await record_conclusion(journal, concluded(second, after={}))
    assert await journal.recent_values(await take(journal, third)) == {alice: {}, bob: {}}
    tables.run("update quota_entity set changed_at = changed_at - interval '1 minute'")
    assert await journal.recent_values(intent_of(third)) == {}
    state = tables.state(first)
    assert (state.stored, state.version, state.entity) == ("{}", 2, '{"user":"alice"}')
    assert str(state.changed_by) == second.alteration_id


async def test_recovery_counts_from_the_end_of_the_time_in_which_an_intent_may_be_sent(
    journal: PostgresJournal, tables: Tables
):
    """Small ones, which share a transaction, and those that cannot."""
    lost = request_of("superseded")
    await take(journal, lost)
    await record_conclusion(journal, concluded(lost, Outcome.UNKNOWN, None))
    for user, superseded in (("alice", None), ("superseded", lost.alteration_id)):
        request = request_of(user)
        claim = replace(intent_of(request, supersedes=superseded), send_within_s=123.0)
        await record_intent(journal, claim)
        lock = tables.locks(request)[0]
        assert lock.handed_over_by - lock.taken_at == timedelta(seconds=123.0 + STANDSTILL_S)


async def test_an_unknown_outcome_keeps_the_entity_in_quarantine(
    journal: PostgresJournal, tables: Tables
):
    request = request_of("alice", "bob")
    await take(journal, request)
    open_lock = tables.locks(request)[0]
    assert not open_lock.quarantined
    results = dict(concluded(request, Outcome.UNKNOWN, None).results)
    results[1] = concluded(request).results[1]
    await record_conclusion(journal, Conclusion(request.alteration_id, results))
    assert list(tables.locks(request)) == [0]
    lock = tables.locks(request)[0]
    assert lock.quarantined
    assert open_lock.taken_at < lock.handed_over_by < open_lock.handed_over_by
    with pytest.raises(EntityBusyError) as raised:
        await take(journal, request_of("alice"))
    assert raised.value.alteration_id == request.alteration_id
    assert " of {user=alice} is in flight" in raised.value.detail
    assert 60 < (raised.value.retry_after_s or 0) <= 95
    await take(journal, request_of("bob"))


@pytest.mark.parametrize("wrong_by", [timedelta(days=-1), timedelta(seconds=-2), timedelta(days=1)])
async def test_the_age_of_what_is_in_quarantine_is_judged_by_the_clock_of_the_database_alone(
    journal: PostgresJournal, tables: Tables, wrong_by: timedelta
):
    request = request_of("alice")
    await take(journal, request)
    lock = tables.locks(request)[0]
    tables.age(request, 1.0)
    (before,) = tables.run("select clock_timestamp() as now")
    sent_at = datetime.now(UTC) + wrong_by
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None, sent_at))
    quarantined = tables.locks(request)[0].handed_over_by
    assert before.now <= quarantined <= lock.handed_over_by


async def test_a_lock_in_an_open_transaction_is_not_waited_for_long(
    journal: PostgresJournal, audit_database: AuditDatabase
):
    request = request_of("alice", "bob")
    values = (request.cluster_id, entity_hash(request.changes[1].entity))
    with psycopg.connect(audit_database.service_url) as other:
        other.execute(INSERT, values)
        assert await holder_of(journal, request) is None
        other.rollback()
        await take(journal, request)


async def test_a_lock_is_free_for_whoever_waits_when_its_holder_concludes(
    journal: PostgresJournal, audit_database: AuditDatabase
):
    first, second = request_of("alice"), request_of("alice")
    await take(journal, first)
    await record_conclusion(journal, concluded(first))
    values = (first.cluster_id, entity_hash(first.changes[0].entity))
    taken: Alteration | BaseException = EntityBusyError("not tried yet")
    async with asyncio.timeout(DEADLINE_S):
        while isinstance(taken, EntityBusyError):  # the holder took half a second to conclude
            with psycopg.connect(audit_database.service_url) as other:
                other.execute(INSERT, values)
                other.execute('update quota_entity set "values" = \'{"a":7}\'')
                waiting = asyncio.create_task(take(journal, second))
                await until_a_call_waits(audit_database)
                other.execute(FREE)
                other.commit()
            (taken,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(taken, Alteration)
    assert list((await journal.recent_values(taken)).values()) == [{"a": 7.0}]


USERS = [f"user-{number}" for number in range(12)]


async def test_writers_that_overlap_never_share_an_entity_and_never_block_each_other_for_good(
    audit_database: AuditDatabase, connect: Callable[..., Database], tables: Tables
):
    notice_deadlocks = f"alter database {audit_database.name} set deadlock_timeout = '10ms'"
    run_as(audit_database.superuser_url, notice_deadlocks)
    databases = [connect() for _ in range(3)]
    holding: Counter[str] = Counter()
    done, busy = 0, 0

    async def write(number: int) -> None:
        nonlocal done, busy
        journal = PostgresJournal(databases[number % len(databases)])
        chance = random.Random(number)
        for _ in range(10):
            users = chance.sample(USERS, chance.randint(1, 5))
            request = request_of(*users)
            try:
                await take(journal, request)
            except EntityBusyError:
                busy += 1
                continue
            holding.update(users)
            assert {holding[user] for user in users} == {1}
            await asyncio.sleep(0)
            holding.subtract(users)
            await record_conclusion(journal, concluded(request, chance.choice(DEFINITE)))
            done += 1

    await asyncio.gather(*(write(number) for number in range(30)))
    for database in databases:
        await database.close()
    await until_connected(audit_database, 0)
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert tables.run(deadlocks)[0].deadlocks == 0
    assert done + busy == 300
    assert done > 30
    assert busy > 0
    assert tables.locked() == 0


async def test_a_deadlock_is_answered_as_a_busy_entity(
    audit_database: AuditDatabase, connect: Callable[..., Database]
):
    request = request_of("alice", "bob")
    first, last = sorted(entity_hash(entity.entity) for entity in request.changes)
    notice_deadlocks = f"alter database {audit_database.name} set deadlock_timeout = "
    run_as(audit_database.superuser_url, f"{notice_deadlocks} '10s'")
    with psycopg.connect(audit_database.service_url) as other:
        other.execute(INSERT, (request.cluster_id, last))
        run_as(audit_database.superuser_url, f"{notice_deadlocks} '50ms'")
        waiting = asyncio.create_task(take(PostgresJournal(connect()), request))
        await until_a_call_waits(audit_database)
        closing_the_circle = asyncio.to_thread(other.execute, INSERT, (request.cluster_id, first))
        results = await asyncio.gather(waiting, closing_the_circle, return_exceptions=True)
    assert isinstance(results[0], EntityBusyError)
    assert results[0].retry == "safe"


async def test_the_times_of_one_entity_are_in_the_order_in_which_it_was_altered(
    connect: Callable[..., Database], journal: PostgresJournal
):
    journals = [PostgresJournal(connect()) for _ in range(2)]
    applied: list[str] = []

    async def write(number: int) -> None:
        journal = journals[number % 2]
        while len(applied) < 100:
            request = request_of("alice")
            try:
                await take(journal, request)
            except EntityBusyError:
                continue
            applied.append(request.alteration_id)
            await record_conclusion(journal, concluded(request))

    await asyncio.gather(*(write(number) for number in range(6)))
    page = await journal.audit_rows(AuditQuery(limit=1000))
    assert [row.alteration_id for row in reversed(page.rows)] == applied
    assert len({row.at for row in page.rows}) == len(applied)


async def test_ten_thousand_locks_are_taken_and_freed_at_once(
    journal: PostgresJournal, tables: Tables
):
    entities = [audit_change(ordinal, {"user": f"u{ordinal}"}) for ordinal in range(10_000)]
    first, second = audit_request(*entities), audit_request(*entities)
    await take(journal, first)
    assert await holder_of(journal, request_of("u9999")) == first.alteration_id
    assert await holder_of(journal, second) == first.alteration_id
    conclusion = concluded(first)
    await record_conclusion(journal, conclusion)
    record = await stored(journal, first)
    assert (record.alteration, record.results) == (first, conclusion.results)
    page = await journal.audit_rows(AuditQuery(limit=10_000))
    assert [row.entity for row in page.rows] == [entity.entity for entity in entities]
    recent = await journal.recent_values(await take(journal, second))
    assert len(recent) == 10_000
    assert {tuple(values.items()) for values in recent.values()} == {tuple(AFTER.items())}
    await record_conclusion(journal, concluded(second, Outcome.UNKNOWN, None))
    assert all(lock.quarantined for lock in tables.locks(second).values())


async def outcomes(journal: PostgresJournal, request: Alteration) -> dict[int, str]:
    record = await stored(journal, request)
    return {ordinal: result.outcome.value for ordinal, result in record.results.items()}


async def test_a_superseded_alteration_gives_up_the_entities_of_the_new_one_only(
    journal: PostgresJournal, tables: Tables
):
    old = await in_doubt(journal, "alice", "bob", "carol")
    new = request_of("carol", "dave", "alice")
    await take(journal, new, supersedes=old.alteration_id)
    assert list(tables.locks(old)) == [1]
    assert {lock.quarantined for lock in tables.locks(new).values()} == {False}
    assert list(tables.locks(new)) == [0, 1, 2]
    assert await outcomes(journal, old) == {0: "superseded", 1: "unknown", 2: "superseded"}
    record = await stored(journal, old)
    detail = f"superseded by alteration {new.alteration_id} before it had an outcome"
    assert [detail for _, event, detail in record.history if event == "recovery"] == [
        f"{detail} for {{user=alice}}",
        f"{detail} for {{user=carol}}",
    ]
    page = await journal.audit_rows(AuditQuery(outcome="superseded"))
    assert [row.alteration_id for row in page.rows] == [old.alteration_id] * 2
    assert [row.before for row in page.rows] == [None, None]


async def test_what_is_superseded_is_concluded(journal: PostgresJournal, tables: Tables):
    old = await in_doubt(journal, "alice")
    new = request_of("alice")
    await take(journal, new, supersedes=old.alteration_id)
    with pytest.raises(ValueError, match="already"):
        await record_conclusion(journal, concluded(old))
    await record_conclusion(journal, concluded(new))
    assert await outcomes(journal, old) == {0: "superseded"}
    assert await outcomes(journal, new) == {0: "applied"}
    assert str(tables.state(new).changed_by) == new.alteration_id


async def test_what_is_not_in_quarantine_is_not_taken_over(
    journal: PostgresJournal, tables: Tables
):
    held, doubtful = request_of("alice"), await in_doubt(journal, "bob")
    await take(journal, held)
    for supersedes in (held.alteration_id, doubtful.alteration_id, "nonsense", held.request_id):
        with pytest.raises(EntityBusyError) as raised:
            await take(journal, request_of("alice", "bob"), supersedes=supersedes)
        assert raised.value.alteration_id in (held.alteration_id, doubtful.alteration_id)
    with pytest.raises(EntityBusyError):
        await take(journal, request_of("alice"), supersedes=held.alteration_id)
    assert await outcomes(journal, doubtful) == {0: "unknown"}
    assert tables.locked() == 2


async def test_of_two_that_supersede_at_once_one_wins(journal: PostgresJournal, tables: Tables):
    users = [f"user-{number}" for number in range(20)]
    for _ in range(10):
        old = await in_doubt(journal, *users)
        news = [request_of(*users), request_of(*reversed(users))]
        results = await asyncio.gather(
            *(take(journal, new, supersedes=old.alteration_id) for new in news),
            return_exceptions=True,
        )
        won = [
            new for new, result in zip(news, results, strict=True) if isinstance(result, Alteration)
        ]
        (error,) = [result for result in results if isinstance(result, Exception)]
        assert len(won) == 1
        assert isinstance(error, EntityBusyError)
        assert error.alteration_id == won[0].alteration_id
        assert set((await outcomes(journal, old)).values()) == {"superseded"}
        await record_conclusion(journal, concluded(won[0]))
    assert tables.locked() == 0
