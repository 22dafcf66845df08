"""How the log is written: in shared transactions, where each stands by itself, and by index."""

import asyncio
import hashlib
import json
import re
import struct
from collections.abc import Awaitable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
import pytest

from app.domain.alterations import Outcome
from app.domain.errors import EntityBusyError, NotFoundError, NotSentError
from app.postgres.audit_log import (
    MAX_BATCH_ROWS,
    BatchRejectedError,
    PostgresJournal,
    can_share,
    write_intents,
    write_outcomes,
)
from app.postgres.payload import canonical_bytes, canonical_json
from app.postgres.pool import Database, Lease
from app.service.ports.alterations import Alteration, IdempotencyKey
from app.service.ports.audit_log import (
    KeyTakenError,
)
from app.service.runtime.clock import Patience
from tests.integration.postgres.calls import (
    AFTER,
    FREE,
    Tables,
    concluded,
    hash_of,
    request_of,
    run_as,
    stored,
)
from tests.testkit.postgres import (
    AuditDatabase,
    intend,
    intent_of,
    record_conclusion,
    record_intent,
)

T = TypeVar("T")

KEY = IdempotencyKey("k", b"f" * 32)
OTHER_KEY = IdempotencyKey("o", b"f" * 32)


async def all_of(calls: Sequence[Awaitable[T]]) -> list[T | BaseException]:
    """Make the calls at the same time, so that all after the first share a transaction."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def intended(
    journal: PostgresJournal, *requests: Alteration, key: IdempotencyKey | None = None
) -> list[Alteration | BaseException]:
    """Record intents at once, each by itself."""
    first = request_of("first")
    calls = [record_intent(journal, intent_of(first))]
    calls += [record_intent(journal, intent_of(request, key=key)) for request in requests]
    found = await all_of(calls)
    assert isinstance(found[0], Alteration)
    return found[1:]


async def test_intents_of_one_turn_are_all_recorded_with_their_own_state(
    journal: PostgresJournal, tables: Tables
):
    earlier = request_of("user-3")
    await intend(journal, earlier)
    await record_conclusion(journal, concluded(earlier))
    requests = [request_of(f"user-{number}") for number in range(20)]
    found = await intended(journal, *requests)
    assert all(isinstance(result, Alteration) for result in found)
    recent = [await journal.recent_values(item) for item in found if isinstance(item, Alteration)]
    assert [list(values.values()) for values in recent] == [
        [AFTER] if number == 3 else [] for number in range(20)
    ]
    for request in requests:
        record = await stored(journal, request)
        assert record.alteration == request
        assert not tables.locks(request)[0].quarantined


async def test_the_database_fills_in_the_times_that_its_rows_have(
    journal: PostgresJournal, tables: Tables
):
    requests = [request_of("a", "b"), request_of("c")]
    await intended(journal, *requests)
    await asyncio.gather(*(record_conclusion(journal, concluded(request)) for request in requests))
    rows = tables.run(
        "select at, occurred_at, seq, documents_hash, payload, leaf_hash, array(select document "
        "from audit_entity as entity where (entity.received_at, entity.alteration_id, entity.seq) "
        "= (event.received_at, event.alteration_id, event.seq) order by ordinal) as documents "
        "from audit_event as event"
    )
    assert sorted(row.seq for row in rows) == [0] * 3 + [1] * 2
    for row in rows:
        assert row.documents_hash == hashlib.sha256(",".join(row.documents).encode()).digest()
        since_2000 = [time - datetime(2000, 1, 1, tzinfo=UTC) for time in (row.at, row.occurred_at)]
        times = struct.pack(">qq", *(time // timedelta(microseconds=1) for time in since_2000))
        sealed = b"\0" + times + row.documents_hash + row.payload
        assert row.leaf_hash == hashlib.sha256(sealed).digest()
        assert row.payload == canonical_bytes(json.loads(row.payload))
        assert row.at <= row.occurred_at if row.seq else row.at == row.occurred_at
    documents = tables.run("select ordinal, document from audit_entity_event order by ordinal")
    assert [json.loads(row.document)["ordinal"] for row in documents] == [
        row.ordinal for row in documents
    ]
    assert len(documents) == 4 + 3
    for row in documents:
        assert row.document == canonical_json(json.loads(row.document))


async def test_transactions_are_shared(journal: PostgresJournal, tables: Tables):
    intents = [intent_of(request_of(f"user-{number}")) for number in range(30)]
    assert await journal.record_intents(intents) == [None] * 30
    (row,) = tables.run("select count(distinct xmin::text) as number from audit_event")
    assert row.number == 1


async def test_a_taken_entity_stops_its_own_request_only(journal: PostgresJournal, tables: Tables):
    holder = request_of("busy")
    await intend(journal, holder)
    good, bad, also_good = request_of("a"), request_of("b", "busy", "c"), request_of("d")
    found = await intended(journal, good, bad, also_good)
    assert [type(result) for result in found] == [Alteration, EntityBusyError, Alteration]
    assert isinstance(found[1], EntityBusyError)
    assert found[1].alteration_id == holder.alteration_id
    assert await journal.alteration(bad.alteration_id) is None
    assert not tables.locks(bad)
    assert tables.locks(good)
    assert tables.locks(also_good)
    await intend(journal, request_of("b", "c"))


async def test_a_used_key_stops_its_own_request_only(journal: PostgresJournal, tables: Tables):
    used = request_of("x")
    await record_intent(journal, intent_of(used, key=KEY))
    fresh, repeat = request_of("a"), request_of("b")
    first = request_of("first")
    found = await all_of(
        [
            record_intent(journal, intent_of(first)),
            record_intent(journal, intent_of(fresh, key=OTHER_KEY)),
            record_intent(journal, intent_of(repeat, key=KEY)),
        ]
    )
    assert [type(result) for result in found] == [Alteration, Alteration, KeyTakenError]
    assert isinstance(found[2], KeyTakenError)
    assert found[2].stored.alteration_id == used.alteration_id
    assert not tables.locks(repeat)
    stored = await journal.stored_key(hash_of(OTHER_KEY))
    assert stored is not None
    assert stored.alteration_id == fresh.alteration_id


async def test_one_key_at_the_same_time_is_one_intent(journal: PostgresJournal):
    requests = [request_of(f"user-{number}") for number in range(5)]
    found = await intended(journal, *requests, key=KEY)
    assert [type(result) for result in found].count(Alteration) == 1
    winner = next(
        request
        for request, result in zip(requests, found, strict=True)
        if isinstance(result, Alteration)
    )
    for result in found:
        if not isinstance(result, Alteration):
            assert isinstance(result, KeyTakenError)
            assert result.stored.alteration_id == winner.alteration_id


async def test_one_entity_at_the_same_time_is_one_intent(journal: PostgresJournal):
    found = await intended(journal, *(request_of("same") for _ in range(5)))
    assert (
        sorted(type(result).__name__ for result in found)
        == ["Alteration"] + ["EntityBusyError"] * 4
    )


async def test_a_batch_that_would_wait_for_a_lock_is_rejected(
    database: Database, audit_database: AuditDatabase, journal: PostgresJournal
):
    request = request_of("locked")
    await intend(journal, request)
    with psycopg.connect(audit_database.owner_url) as other:
        other.execute(FREE)
        drafts = [intent_of(item) for item in (request_of("a"), request_of("locked"))]
        with pytest.raises(BatchRejectedError):
            await database.writing.run(lambda lease: write_intents(drafts, lease, lock_s=0.05))
        assert await journal.alteration(drafts[0].alteration_id) is None
        good, waiting = request_of("a"), request_of("locked")
        found = await intended(journal, good, waiting)
        other.rollback()
    assert [type(result) for result in found] == [Alteration, EntityBusyError]


async def test_a_draft_that_takes_over_shares_with_nobody():
    plain, taking = request_of("a"), request_of("b")
    assert can_share(intent_of(plain))
    assert not can_share(intent_of(taking, supersedes=plain.alteration_id))
    assert not can_share(intent_of(plain, rests_on=["c"]))


async def test_conclusions_of_one_turn_free_their_locks_and_keep_their_states(
    journal: PostgresJournal, tables: Tables
):
    requests = [request_of(f"user-{number}") for number in range(12)]
    for request in requests:
        await intend(journal, request)
    outcomes = [Outcome.APPLIED, Outcome.REFUSED, Outcome.UNKNOWN] * 4
    pairs = list(zip(requests, outcomes, strict=True))
    conclusions = [
        concluded(item, outcome, AFTER if outcome is Outcome.APPLIED else None)
        for item, outcome in pairs
    ]
    assert await journal.record_conclusions(conclusions) == [None] * 12
    for request, outcome in pairs:
        record = await stored(journal, request)
        assert record.results[0].outcome is outcome
        locks = tables.locks(request)
        assert [lock.quarantined for lock in locks.values()] == [True] * (
            outcome is Outcome.UNKNOWN
        )
        assert (tables.state(request) is not None) is (outcome is Outcome.APPLIED)
    (row,) = tables.run(
        "select count(distinct xmin::text) as number from audit_event where seq = 1"
    )
    assert row.number == 1


async def test_a_conclusion_without_an_intent_fails_alone(journal: PostgresJournal):
    good, also_good, never = request_of("a"), request_of("b"), request_of("c")
    for request in (good, also_good):
        await intend(journal, request)
    found = [
        answer
        for pair in ((good, never), (never, also_good))
        for answer in await journal.record_conclusions([concluded(item) for item in pair])
    ]
    assert [type(result) for result in found] == [
        type(None),
        NotFoundError,
        NotFoundError,
        type(None),
    ]
    for request in (good, also_good):
        record = await stored(journal, request)
        assert record.results[0].outcome is Outcome.APPLIED


async def test_what_contradicts_the_log_fails_alone(
    database: Database, journal: PostgresJournal, tables: Tables
):
    concluded_before, good = request_of("a"), request_of("b")
    await intend(journal, concluded_before)
    await record_conclusion(journal, concluded(concluded_before))
    await intend(journal, good)
    both = [concluded(good), concluded(concluded_before, Outcome.REFUSED, None)]
    first, second = await database.writing.run(lambda lease: write_outcomes(both, lease))
    assert first is None
    assert isinstance(second, ValueError)
    assert not tables.locks(good)
    record = await stored(journal, concluded_before)
    assert record.results[0].outcome is Outcome.APPLIED


@pytest.mark.parametrize("patience", [Patience(database_answer_s=6.0)])
async def test_who_meets_a_locked_row_waits_while_the_others_are_concluded(
    journal: PostgresJournal, tables: Tables, audit_database: AuditDatabase
):
    good, locked = request_of("a"), request_of("locked")
    for request in (good, locked):
        await intend(journal, request)
    with psycopg.connect(audit_database.owner_url) as other:
        other.execute(
            "select from quota_entity where alteration_id = %s for update", [locked.alteration_id]
        )
        first, second = await all_of(
            [record_conclusion(journal, concluded(item)) for item in (good, locked)]
        )
        other.rollback()
    assert first is None
    assert isinstance(second, NotSentError)
    assert not tables.locks(good)
    await record_conclusion(journal, concluded(locked))
    assert not tables.locks(locked)


SCAN = re.compile(r"(?:Seq Scan|Scan using \w+) on (?:audit|quota|idempotency)\w*.*\n(?=(.*))")
SCANS = """
    select sum(seq_scan) from pg_stat_xact_user_tables
    where relname = 'quota_entity' or relname like 'audit\\_e%'
    """


def users(prefix: str) -> list[str]:
    return [f"{prefix}-{n}" for n in range(MAX_BATCH_ROWS)]


@pytest.fixture
async def seemingly_empty(journal: PostgresJournal, audit_database: AuditDatabase) -> Alteration:
    """A request whose locks Postgres does not know of: when it last looked there were none."""
    for prefix in ("first", "second"):
        request = request_of(*users(prefix))
        await intend(journal, request)
        await record_conclusion(journal, concluded(request))
        run_as(audit_database.superuser_url, "analyze")
    await intend(journal, request := request_of(*users("third")))
    return request


async def test_thousands_are_joined_by_hash_in_sessions_that_avoid_it(database: Database):
    """Compared all with all, 10,000 took 10 s."""

    async def settings(lease: Lease) -> tuple[list[list[str]], str]:
        query = "select proconfig from pg_proc where proname in (%(conclusions)s, %(intents)s)"
        names = {"conclusions": "record_conclusions", "intents": "record_intents"}
        found = [list(item) for (item,) in await lease.rows(query, names)]
        return found, str((await lease.rows("show enable_hashjoin"))[0][0])

    found, of_session = await database.writing.run(settings)
    assert of_session == "off"
    assert len(found) == 2
    for result in found:
        assert {"enable_hashjoin=on", "enable_nestloop=off", "enable_seqscan=off"} <= set(result)


@pytest.mark.usefixtures("seemingly_empty")
async def test_outcomes_find_locks_and_intents_by_index(
    database: Database, journal: PostgresJournal
):
    request = request_of("one")
    await intend(journal, request)
    unsent = concluded(request, Outcome.NOT_SENT, None)

    async def look(lease: Lease) -> tuple[int | None, int | None]:
        before = (await lease.rows(SCANS))[0][0]
        await write_outcomes([unsent], lease)
        return before, (await lease.rows(SCANS))[0][0]

    before, after = await database.writing.run(look)
    assert before == after


OF_A_CALL = {
    "conclusions": "conclusion[]",
    "alterations": "uuid[]",
    "clusters": "text[]",
    "hashes": "bytea[]",
    "now": "timestamptz",
}
VARIABLES = {
    "claim_keys": {"keys": "json", "keep_s": "float"},
    "take_locks": {"events": "new_event[]", "locks": "json", "handed_over_within": "float"},
    "record_intents": {"lost": "uuid[]"},
    "add_events": {"events": "new_event[]", "entities": "new_entity[]", "now": "timestamptz"},
    **dict.fromkeys(("find_refused", "change_owners", "free_locks"), OF_A_CALL),
    "keep_keys": {
        "alterations": "uuid[]",
        "repeatable": "uuid[]",
        "starts": "timestamptz[]",
        "keep_s": "float",
    },
    "record_conclusions": {"alterations": "uuid[]", "clusters": "text[]", "hashes": "bytea[]"},
}
"""The variables that the statements of each function read."""

STATEMENT = re.compile(
    r"^ *(?:with|update|delete|perform from)\b.*?(?=;$)", re.DOTALL | re.MULTILINE
)


def plans_of(postgres: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield the generic plan of each statement of the functions that write the log."""
    query = "select proconfig from pg_proc where proname = 'record_conclusions'"
    ((settings,),) = postgres.execute(query).fetchall()
    for setting in settings:
        postgres.execute("select set_config(%s, %s, false)", str(setting).split("="))
    for function, variables in VARIABLES.items():
        query = "select prosrc from pg_proc where proname = %s"
        ((body,),) = postgres.execute(query, [function]).fetchall()
        for found in STATEMENT.findall(str(body)):
            selecting = found.replace("perform from", "select from", 1)
            statement = re.sub(r"\binto (refused|lost)\b", "", selecting)
            for number, (name, kind) in enumerate(variables.items(), 1):
                used = rf"(?<![.\w]){name}\b(?!\.)"
                statement = re.sub(used, f"${number}::{kind}", statement)
            explain = f"explain (generic_plan, costs off) {statement}".encode()
            yield "\n".join(row for (row,) in psycopg.ClientCursor(postgres).execute(explain))


def test_no_statement_that_writes_the_log_reads_a_whole_table(audit_database: AuditDatabase):
    with psycopg.connect(audit_database.superuser_url, autocommit=True) as postgres:
        plans = list(plans_of(postgres))
    following = [match[1].strip() for plan in plans for match in SCAN.finditer(plan)]
    assert len(following) > 20
    assert [line for line in following if not line.startswith("Index Cond:")] == []
