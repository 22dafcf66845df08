import asyncio
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import psycopg
import pytest

from app.domain.alterations import AlterationResult, KafkaRefusal, Outcome
from app.domain.errors import EntityBusyError, NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.postgres.schema import keep_house
from app.service.ports.alterations import Alteration, Conclusion, IdempotencyKey
from app.service.ports.audit_log import (
    KeyTakenError,
    StoredKey,
)
from tests.integration.postgres.calls import (
    Tables,
    concluded,
    found,
    hash_of,
    listed,
    request_of,
    stored,
    take,
    until_a_call_waits,
)
from tests.testkit.kafka import unique
from tests.testkit.postgres import AuditDatabase, record_conclusion
from tests.testkit.sizes import size

KEYS = size(100, 1000)

INSERT = (
    "insert into idempotency (key_hash, fingerprint, alteration_id, expires_at) "
    "values (%s, %s, %s, now() + '1 day')"
)


def key_of(name: str, body: str = "body") -> IdempotencyKey:
    return IdempotencyKey(name, sha256(body.encode()).digest())


async def stored_under(
    journal: PostgresJournal, request: Alteration, key: IdempotencyKey
) -> StoredKey:
    with pytest.raises(KeyTakenError) as raised:
        await take(journal, request, key)
    return raised.value.stored


async def test_a_key_is_stored_with_its_intent_and_found_again(
    journal: PostgresJournal, tables: Tables
):
    key, request = key_of("k"), request_of("alice")
    assert await journal.stored_key(hash_of(key)) is None
    await take(journal, request, key)
    stored = StoredKey(request.alteration_id, key.fingerprint)
    assert await journal.stored_key(hash_of(key)) == stored
    again, other = request_of("alice"), key_of("k", "another body")
    assert await stored_under(journal, again, key) == stored
    assert await stored_under(journal, again, other) == stored
    await record_conclusion(journal, concluded(request))
    assert await stored_under(journal, again, key) == stored
    assert await journal.alteration(again.alteration_id) is None
    assert (tables.count("idempotency"), tables.locked()) == (1, 0)
    await take(journal, again, key_of("another key"))


async def test_each_of_many_keys_sent_three_times_at_once_is_one_intent(
    connect: Callable[..., Database], tables: Tables
):
    journals = [PostgresJournal(connect()) for _ in range(3)]
    several = asyncio.Semaphore(24)
    winners: dict[int, set[str]] = {}

    async def send(number: int, copy: int) -> None:
        async with several:
            winner = await first_with(journals[copy], number)
        winners.setdefault(number, set()).add(winner)

    await asyncio.gather(*(send(number, copy) for number in range(KEYS) for copy in range(3)))
    assert [len(winners[number]) for number in range(KEYS)] == [1] * KEYS
    intents = tables.run("select alteration_id from audit_event where seq = 0")
    assert {str(row.alteration_id) for row in intents} == set.union(*winners.values())
    assert len(intents) == KEYS


async def first_with(journal: PostgresJournal, number: int) -> str:
    """Take a key; return whose it is. A database too busy to answer in time is asked again."""
    while True:
        request = request_of(f"user-{number}")
        try:
            await take(journal, request, key_of(str(number)))
        except KeyTakenError as error:
            return error.stored.alteration_id
        except (NotSentError, EntityBusyError):
            continue
        return request.alteration_id


async def test_who_repeats_a_key_waits_for_the_commit_of_the_first(
    journal: PostgresJournal, audit_database: AuditDatabase
):
    for end, wins in (("commit", False), ("rollback", True)):
        result: Alteration | BaseException = EntityBusyError("not tried yet")
        while isinstance(result, EntityBusyError):  # the first took half a second to end
            key = key_of(unique(end))
            first, second = request_of(unique(end)), request_of(unique(end))
            with psycopg.connect(audit_database.service_url) as other:
                other.execute(INSERT, (hash_of(key), key.fingerprint, first.alteration_id))
                waiting = asyncio.create_task(take(journal, second, key))
                await until_a_call_waits(audit_database)
                getattr(other, end)()
            (result,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(result, Alteration if wins else KeyTakenError)
        stored = await journal.stored_key(hash_of(key))
        assert stored is not None
        assert stored.alteration_id == (second if wins else first).alteration_id


async def test_a_key_whose_first_request_takes_too_long_is_running(
    journal: PostgresJournal, audit_database: AuditDatabase
):
    key, request = key_of("k"), request_of("alice")
    with psycopg.connect(audit_database.service_url) as other:
        other.execute(INSERT, (hash_of(key), key.fingerprint, request.alteration_id))
        with pytest.raises(EntityBusyError) as raised:
            await take(journal, request, key)
        other.rollback()
    assert raised.value.code == "idempotency-key-running"
    assert (raised.value.sent, raised.value.retry_after_s) == ("no", 1)
    await take(journal, request, key)


async def test_a_key_expires_a_day_after_the_conclusion(journal: PostgresJournal, tables: Tables):
    key, request = key_of("k"), request_of("alice")
    left = (
        "select extract(epoch from expires_at - clock_timestamp())::int as seconds from idempotency"
    )
    await take(journal, request, key)
    assert 86_340 < tables.run(left)[0].seconds <= 86_400
    tables.run("update idempotency set expires_at = clock_timestamp() + '1 min'")
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None))
    assert 86_340 < tables.run(left)[0].seconds <= 86_400


THROTTLED = KafkaRefusal("THROTTLING_QUOTA_EXCEEDED", "later")
INVALID = KafkaRefusal("INVALID_REQUEST", "no")


def ended(request: Alteration, *outcomes: Outcome, error: KafkaRefusal | None = None) -> Conclusion:
    results = {
        entity.ordinal: AlterationResult(
            entity.entity,
            outcome,
            before={},
            after={},
            error=error if outcome is Outcome.REFUSED else None,
        )
        for entity, outcome in zip(request.changes, outcomes, strict=True)
    }
    return Conclusion(request.alteration_id, results)


async def test_a_key_is_free_again_where_a_rule_refused_all_of_it_behind_the_barrier(
    journal: PostgresJournal,
):
    key, request = key_of("k"), request_of("alice", "bob")
    await take(journal, request, key)
    refused = ended(request, Outcome.NOT_APPLIED, Outcome.REFUSED, error=INVALID)
    late = {1: refused.results[1]}
    await record_conclusion(journal, replace(refused, rejected=late, is_repeatable=True))
    assert await journal.stored_key(hash_of(key)) is None
    record = await stored(journal, request)
    assert [each.outcome for each in record.results.values()] == ["not_applied", "refused"]
    assert list(record.alteration.local_refusals) == [1]
    assert sorted(await listed(journal, request)) == ["not_applied", "refused"]


@pytest.mark.parametrize(
    ("outcomes", "error", "is_free"),
    [
        ([Outcome.NOT_SENT, Outcome.NOT_SENT], None, True),
        ([Outcome.NOT_SENT, Outcome.REFUSED], INVALID, True),
        ([Outcome.NOT_SENT, Outcome.NOT_APPLIED], None, True),
        ([Outcome.REFUSED, Outcome.REFUSED], THROTTLED, True),
        ([Outcome.NOT_SENT, Outcome.APPLIED], None, False),
        ([Outcome.NOT_SENT, Outcome.UNKNOWN], None, False),
        ([Outcome.REFUSED, Outcome.APPLIED], THROTTLED, False),
        ([Outcome.REFUSED, Outcome.REFUSED], INVALID, False),
        ([Outcome.NOT_APPLIED, Outcome.NOT_APPLIED], None, False),
    ],
)
async def test_a_key_is_free_again_where_its_alteration_may_be_repeated(
    journal: PostgresJournal,
    tables: Tables,
    outcomes: list[Outcome],
    error: KafkaRefusal | None,
    is_free: bool,
):
    key, request, again = key_of("k"), request_of("alice", "bob"), request_of("alice", "bob")
    await take(journal, request, key)
    for _ in range(2):
        await record_conclusion(journal, ended(request, *outcomes, error=error))
        assert (await journal.stored_key(hash_of(key)) is None) is is_free
    if not is_free:
        return
    await take(journal, again, key)
    await record_conclusion(journal, ended(request, *outcomes, error=error))
    stored = await journal.stored_key(hash_of(key))
    assert stored is not None
    assert stored.alteration_id == again.alteration_id
    await record_conclusion(journal, concluded(again))
    assert tables.count("idempotency") == 1


async def test_a_key_is_held_until_every_entity_is_certainly_not_sent(
    journal: PostgresJournal, recovery: PostgresRecovery
):
    key, request = key_of("k"), request_of("alice", "bob", "carol")
    await take(journal, request, key)
    both = ended(request, *[Outcome.NOT_SENT] * 3)
    first = replace(both, results={0: both.results[0]})
    await record_conclusion(journal, first)
    assert await journal.stored_key(hash_of(key)) is not None
    await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=True, ordinal=1)])
    with pytest.raises(ValueError, match="already not_applied"):
        await record_conclusion(journal, both)
    assert await journal.stored_key(hash_of(key)) is None


@pytest.mark.parametrize(
    ("outcomes", "is_free"),
    [
        ([Outcome.NOT_APPLIED, Outcome.NOT_APPLIED], True),
        ([Outcome.APPLIED, Outcome.NOT_APPLIED], False),
        ([Outcome.NOT_APPLIED, Outcome.OBSERVED_OTHER], False),
    ],
)
async def test_a_key_is_free_where_all_was_found_not_applied(
    journal: PostgresJournal, recovery: PostgresRecovery, outcomes: list[Outcome], is_free: bool
):
    key, request = key_of("k"), request_of("alice", "bob")
    await take(journal, request, key)
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None))
    for ordinal, outcome in enumerate(outcomes):
        assert await journal.stored_key(hash_of(key)) is not None
        await recovery.record_recovery([found(request, outcome, final=True, ordinal=ordinal)])
    stored = await journal.stored_key(hash_of(key))
    assert (stored is None) is is_free
    if is_free:
        await take(journal, request_of("alice", "bob"), key)


async def test_an_expired_key_is_a_new_one_and_is_removed_in_time(
    journal: PostgresJournal, tables: Tables, database: Database
):
    key, first, second = key_of("k"), request_of("alice"), request_of("bob")
    await take(journal, first, key)
    expire = "update idempotency set expires_at = clock_timestamp()"
    tables.run(expire)
    assert await journal.stored_key(hash_of(key)) is None
    renewed = key_of("k", "another body")
    await take(journal, second, renewed)
    stored = StoredKey(second.alteration_id, renewed.fingerprint)
    assert await journal.stored_key(hash_of(key)) == stored
    await keep_house(database)
    assert tables.count("idempotency") == 1
    tables.run(expire)
    await keep_house(database)
    assert tables.count("idempotency") == 0


async def test_a_taken_key_is_reported_before_a_taken_lock(journal: PostgresJournal):
    key, request = key_of("k"), request_of("alice")
    await take(journal, request, key)
    assert (
        await stored_under(journal, request_of("alice"), key)
    ).alteration_id == request.alteration_id
    with pytest.raises(EntityBusyError):
        await take(journal, request_of("alice"), key_of("another"))
