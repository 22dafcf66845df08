"""Postgres dies at any time: all that was acknowledged is there, and nothing else is."""

import asyncio

import pytest

from app.domain.alterations import Outcome
from app.domain.errors import NotSentError
from app.localdev.postgres import LocalPostgres
from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.ports.audit_log import AuditRequest, KeyClaim
from tests.integration.postgres.calls import Tables, concluded, request_of
from tests.testkit.postgres import CLUSTER, intent_of
from tests.testkit.sizes import size

CYCLES = size(2, 4)


class Writer:
    """Alters entities of its own until it is stopped, and remembers what was acknowledged."""

    def __init__(self, journal: PostgresJournal, number: int) -> None:
        self.tried: dict[str, AuditRequest] = {}
        self.intents: set[str] = set()
        self.conclusions: set[str] = set()
        self._journal = journal
        self._number = number

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            count = len(self.tried)
            users = [f"user-{self._number}-{count}-{number}" for number in range(1 + count % 3)]
            request = request_of(*users)
            self.tried[request.alteration_id] = request
            try:
                await self._write(request)
            except NotSentError:
                await asyncio.sleep(0.02)

    async def _write(self, request: AuditRequest) -> None:
        name = request.alteration_id.replace("-", "").encode()
        await self._journal.record_intent(intent_of(request, key=KeyClaim(name, name)))
        self.intents.add(request.alteration_id)
        await self._journal.record_conclusion(concluded(request))
        self.conclusions.add(request.alteration_id)


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_what_was_acknowledged_outlives_the_server(
    postgres: LocalPostgres, journal: PostgresJournal, database: Database, tables: Tables, end: str
):
    writers = [Writer(journal, number) for number in range(6)]
    stop = asyncio.Event()
    running = [asyncio.create_task(writer.run(stop)) for writer in writers]
    for cycle in range(1, CYCLES + 1):
        await until_acknowledged(writers, 20 * cycle)
        await asyncio.to_thread(getattr(postgres, end))
        await asyncio.to_thread(postgres.start)
    await until_acknowledged(writers, 20 * (CYCLES + 1))
    stop.set()
    await asyncio.gather(*running)
    for writer in writers:
        for alteration_id, request in writer.tried.items():
            await check(journal, tables, writer, request)
            assert alteration_id not in writer.conclusions or alteration_id in writer.intents
    await recover_all(database, tables)


async def until_acknowledged(writers: list[Writer], number: int) -> None:
    async with asyncio.timeout(30):
        while sum(len(writer.conclusions) for writer in writers) < number:
            await asyncio.sleep(0.005)


async def check(
    journal: PostgresJournal, tables: Tables, writer: Writer, request: AuditRequest
) -> None:
    record = await journal.alteration(request.alteration_id)
    key = await journal.stored_key(request.alteration_id.replace("-", "").encode())
    locks = tables.locks(request)
    assert (record is None) == (key is None)
    if record is None:
        assert request.alteration_id not in writer.intents
        assert not locks
        return
    assert record.request == request
    outcomes = {result.outcome for result in record.results.values()}
    if request.alteration_id in writer.conclusions:
        assert outcomes == {Outcome.APPLIED}
    assert len(outcomes) == 1
    applied = outcomes == {Outcome.APPLIED}
    assert len(locks) == (0 if applied else len(request.entities))
    assert (tables.state(request) is not None) == applied


async def recover_all(database: Database, tables: Tables) -> None:
    tables.run("update quota_entity set taken_at = now() - '1 hour'::interval")
    tables.run("update quota_entity set handed_over_by = taken_at")
    left = tables.locked()
    claimed = await PostgresRecovery(database).claim_open(CLUSTER, "me", limit=10_000)
    assert len(claimed) == left
