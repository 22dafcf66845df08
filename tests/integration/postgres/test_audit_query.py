"""Every condition of the log against a plain loop over what was written."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy.dialects import postgresql

from app.domain.alterations import AlterationResult, Outcome
from app.domain.entities import (
    ANY_TYPE,
    ENTITY_TYPES,
    Caller,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
)
from app.localdev.postgres import LocalPostgres
from app.postgres.audit_log import PostgresJournal
from app.postgres.audit_query import audit_statement
from app.postgres.pool import Database, Lease
from app.service.ports.alterations import Conclusion
from app.service.ports.audit_log import (
    AuditQuery,
    AuditRow,
)
from tests.integration.postgres.calls import Tables, run_as
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import (
    HOSTILE_NAMES,
    AuditDatabase,
    audit_change,
    audit_request,
    database_of,
    intend,
    migrated_database,
    record_conclusion,
)

LONG = "team-" + "é" * 40
NAMES = ("alice", "team-a", "team-b", "team", LONG, LONG + "x", *HOSTILE_NAMES)
WITH_CLIENT = ((None, None), (None, "alice"), ("alice", None), ("alice", "etl"), ("a", "team-a"))
ADDRESSES = (None, "10.0.0.1", "10.0.0.11", "2001:db8::1")
SUBSTRINGS = ("", "TEAM", "m-", "É", "a\x00", "\ud800", ".0.0.1", "DB8", "zz", "é" * 512)
PREFIXES = ("", "team", "team-", "a", "a\x00", LONG, "é", "\ud800", "10.0.0.1", "zz")
ENTITIES: tuple[dict[str, str | None], ...] = (
    *({"user": name} for name in NAMES),
    {"user": None},
    *({"client-id": name} for name in NAMES),
    {"client-id": None},
    *({"user": user, "client-id": client} for user, client in WITH_CLIENT),
    *({"ip": address} for address in ADDRESSES),
    {},
    {"user": "alice", "foo": "bar"},
)
OUTCOMES = (*Outcome, None)
ACTIONS = ("alter", "revert", "apply_plan")
CALLERS = tuple(Caller(f"User:{name}", "192.0.2.1", "bearer") for name in ("a", "b"))


@pytest.fixture(scope="module")
def audit_database(postgres: LocalPostgres) -> AuditDatabase:
    """The log that all tests of this module read; none adds to it."""
    return database_of(postgres, "audit_query", migrated_database(postgres, "audit_query"))


@pytest.fixture(scope="module")
def written(audit_database: AuditDatabase) -> list[AuditRow]:
    """About a hundred rows of every kind, as the whole log lists them."""

    async def write() -> list[AuditRow]:
        database = Database(audit_database.service_url, patience=PATIENT)
        rows = await write_rows(PostgresJournal(database))
        await database.close()
        return rows

    return asyncio.run(write())


async def write_rows(journal: PostgresJournal) -> list[AuditRow]:
    outcomes, actions, callers = map(itertools.cycle, (OUTCOMES, ACTIONS, CALLERS))
    for batch in (ENTITIES[start : start + 3] for start in range(0, len(ENTITIES), 3)):
        entities = [audit_change(ordinal, names) for ordinal, names in enumerate(batch)]
        request = audit_request(*entities, caller=next(callers), action=next(actions))
        refused = AlterationResult(entities[0].entity, Outcome.REFUSED)
        request = replace(request, local_refusals={50: refused})
        await intend(journal, request)
        results = {
            entity.ordinal: AlterationResult(entity.entity, outcome)
            for entity, outcome in zip(entities, outcomes, strict=False)
            if outcome is not None
        }
        await record_conclusion(journal, Conclusion(request.alteration_id, results))
        await journal.record_final(replace(audit_request(*entities[:1]), action="denied"), {})
        judged = {0: AlterationResult(entities[0].entity, Outcome.VALIDATED)}
        await journal.record_final(replace(audit_request(*entities[:1]), action="validate"), judged)
    await journal.record_final(audit_request(action="denied"), {})
    page = await journal.audit_rows(AuditQuery(limit=10_000))
    assert page.next_after is None
    assert len(page.rows) == len(ENTITIES) + 2 * -(-len(ENTITIES) // 3) + 1
    return list(page.rows)


def filters() -> Iterator[ClientQuotaFilter]:
    """Every single condition, strict and not; then pairs of conditions."""
    single = [
        ClientQuotaFilterComponent(kind, match_type)
        for kind in ENTITY_TYPES
        for match_type in (MatchType.DEFAULT, MatchType.SPECIFIED, MatchType.ABSENT)
    ]
    single += [
        ClientQuotaFilterComponent(kind, MatchType.PREFIX, prefix)
        for kind in ENTITY_TYPES
        for prefix in PREFIXES
    ]
    single += [
        ClientQuotaFilterComponent(kind, MatchType.CONTAINS, substring)
        for kind in (*ENTITY_TYPES, ANY_TYPE)
        for substring in SUBSTRINGS
    ]
    single += [
        ClientQuotaFilterComponent(kind, MatchType.EXACT, name)
        for kind in ENTITY_TYPES
        for name in (*NAMES, "10.0.0.1", "nobody")
    ]
    for components in ((), *((item,) for item in single)):
        yield ClientQuotaFilter(components)
        yield ClientQuotaFilter(components, strict=True)
    for left, right in itertools.combinations(single[:24], 2):
        if left.entity_type != right.entity_type:
            yield ClientQuotaFilter((left, right), strict=left.match_type is MatchType.DEFAULT)


async def listed(journal: PostgresJournal, query: AuditQuery) -> list[AuditRow]:
    return list((await journal.audit_rows(replace(query, limit=10_000))).rows)


async def test_rows_stand_newest_first_and_those_of_a_request_in_its_order(written: list[AuditRow]):
    positions = [(row.at, row.alteration_id) for row in written]
    assert positions == sorted(positions, reverse=True)
    first = [row.entity for row in written if row.alteration_id == written[-1].alteration_id]
    assert first == [ClientQuotaEntity.of(names) for names in ENTITIES[:3]]


async def test_every_entity_filter_finds_what_the_domain_says(
    journal: PostgresJournal, written: list[AuditRow]
):
    found_something = 0
    for quota_filter in filters():
        expected = [row for row in written if row.entity and quota_filter.matches(row.entity)]
        assert await listed(journal, AuditQuery(entity=quota_filter)) == expected, quota_filter
        found_something += bool(expected)
    assert found_something > 100


async def test_the_outcome_is_that_of_the_latest_conclusion(
    journal: PostgresJournal, written: list[AuditRow]
):
    for outcome in (*Outcome, "nonsense"):
        expected = [row for row in written if row.outcome == outcome]
        assert await listed(journal, AuditQuery(outcome=outcome)) == expected, outcome
        assert bool(expected) == (outcome != "nonsense")


async def test_actor_and_action_are_compared_whole(
    journal: PostgresJournal, written: list[AuditRow]
):
    for actor in ("User:a", "User:b", "User:alice", "User:", "User:a%"):
        expected = [row for row in written if row.principal == actor]
        assert await listed(journal, AuditQuery(actor=actor)) == expected, actor
    for action in (*ACTIONS, "denied", "validate", "drift"):
        expected = [row for row in written if row.action == action]
        assert await listed(journal, AuditQuery(action=action)) == expected, action


async def test_since_is_inclusive_and_until_exclusive(
    journal: PostgresJournal, written: list[AuditRow]
):
    early, late = written[len(written) * 2 // 3].at, written[len(written) // 3].at
    ranges = [(early, None), (None, late), (early, late), (late, early), (early, early)]
    ranges += [(early + timedelta(microseconds=1), late + timedelta(microseconds=1))]
    for since, until in ranges:
        expected = [
            row
            for row in written
            if (since is None or row.at >= since) and (until is None or row.at < until)
        ]
        assert await listed(journal, AuditQuery(since=since, until=until)) == expected


async def test_conditions_are_anded(journal: PostgresJournal, written: list[AuditRow]):
    quota_filter = ClientQuotaFilter((ClientQuotaFilterComponent.of_entity_type("user"),))
    target = next(row for row in written[30:] if row.entity and quota_filter.matches(row.entity))
    late = written[0].at
    same = (target.principal, target.outcome, target.action)
    expected = [
        row
        for row in written
        if row.entity
        and quota_filter.matches(row.entity)
        and (row.principal, row.outcome, row.action) == same
        and target.at <= row.at < late
    ]
    assert await listed(journal, AuditQuery(quota_filter, same[0], target.at, late, *same[1:])) == (
        expected
    )
    assert target in expected


async def test_pages_join_into_the_whole_answer(journal: PostgresJournal, written: list[AuditRow]):
    users = ClientQuotaFilter((ClientQuotaFilterComponent.of_entity_type("user"),))
    queries = (AuditQuery(actor="User:a"), AuditQuery(users), AuditQuery(outcome="refused"))
    for query in queries:
        expected = await listed(journal, query)
        assert 7 < len(expected) < len(written)
        for limit in (1, 2, 7, len(expected), 100):
            pages = [page async for page in all_pages(journal, replace(query, limit=limit))]
            assert [row for page in pages for row in page] == expected
            assert {len(page) for page in pages[:-1]} <= {limit}
            assert 0 < len(pages[-1]) <= limit


async def test_the_view_has_a_row_for_each_entity(written: list[AuditRow], tables: Tables):
    rows = tables.run("select * from audit_log order by at desc, alteration_id desc, ordinal")
    assert [(str(row.alteration_id), row.at, row.principal, row.action) for row in rows] == [
        (row.alteration_id, row.at, row.principal, row.action) for row in written
    ]
    assert [(row.entity, row.ops, row.outcome) for row in rows] == [
        (names_in_sql(row.entity), row.ops, row.outcome) for row in written
    ]
    assert [(row.before, row.after, row.error) for row in rows] == [
        (row.before, row.after, row.error) for row in written
    ]


def names_in_sql(entity: ClientQuotaEntity | None) -> dict[str, str | None] | None:
    return entity and {
        kind: name and re.sub("[\0\ud800-\udfff]", "\ufffd", name)
        for kind, name in entity.as_dict().items()
    }


async def all_pages(
    journal: PostgresJournal, query: AuditQuery
) -> AsyncIterator[Sequence[AuditRow]]:
    page = await journal.audit_rows(query)
    yield page.rows
    while page.next_after is not None:
        page = await journal.audit_rows(replace(query, after=page.next_after))
        yield page.rows


async def plan_of(database: Database, query: AuditQuery) -> str:
    """Return how Postgres has answered the query, with the rows that it has read."""
    statement = audit_statement(query).compile(
        dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}
    )
    explain = f"explain (analyze, timing off) {statement}"

    async def ask(lease: Lease) -> str:
        return "\n".join(line for (line,) in await lease.rows(explain))

    return await database.querying.run(ask)


async def test_a_time_reads_the_partitions_of_that_time_alone(
    database: Database, written: list[AuditRow], audit_database: AuditDatabase
):
    run_as(audit_database.owner_url, "select ensure_audit_partitions(12, 3)")
    now = written[0].at
    recent = AuditQuery(since=now - timedelta(minutes=5), until=now)
    refused = replace(recent, outcome="refused")
    for query, scans in ((recent, "request|started"), (refused, "started|ended")):
        plan = await plan_of(database, query)
        scanned = set(re.findall(rf" on audit_\w+_(y\d+m\d+) (?:{scans})", plan))
        assert f"y{now:%Y}m{now:%m}" in scanned
        assert len(scanned) <= 2


async def test_what_is_unknown_is_found_by_what_is_held(
    database: Database,
    journal: PostgresJournal,
    written: list[AuditRow],
    audit_database: AuditDatabase,
):
    with psycopg.connect(audit_database.owner_url, autocommit=True) as owner:
        owner.execute("analyze")  # or it depends on what autovacuum has seen so far
    unknown = [row for row in written if row.outcome == "unknown"]
    concluded = {row.alteration_id: row for row in written if row not in unknown}
    plan = await plan_of(database, AuditQuery(outcome="unknown", limit=10_000))
    read = [int(rows) for rows in re.findall(r"on audit_e.*actual rows=(\d+)", plan)]
    assert sum(read) <= 4 * len(unknown)  # the start and the conclusion, each with its event
    assert len(concluded) > 0
    assert await listed(journal, AuditQuery(outcome="unknown")) == unknown
