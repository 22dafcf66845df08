"""Connections are bounded and waited for; refusals have a cause; closing leaves nothing behind."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from psycopg.conninfo import conninfo_to_dict

from app.domain.errors import NotSentError
from app.localdev.postgres import LocalPostgres
from app.postgres.connect import WRITING
from app.postgres.pool import Database, Lease
from app.service.runtime.clock import Patience
from tests.integration.postgres.calls import run_as
from tests.testkit.event_loops import until
from tests.testkit.patience import PATIENT, PROMPT
from tests.testkit.postgres import AuditDatabase


class Gate:
    """Work that holds its connection until it is opened, and counts who is inside."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.inside = 0
        self.most_inside = 0

    async def __call__(self, lease: Lease) -> int:
        (row,) = await lease.rows("select pg_backend_pid() as pid")
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        await self.opened.wait()
        self.inside -= 1
        return int(row.pid)


async def select_1(lease: Lease) -> object:
    return (await lease.rows("select 1"))[0][0]


@asynccontextmanager
async def slow_server(url: str) -> AsyncIterator[tuple[str, list[float]]]:
    """Yield a URL through which answers come late, and by how many seconds, which may change."""
    target, delay_s = conninfo_to_dict(url), [0.0]
    loop = asyncio.get_running_loop()
    serving: list[asyncio.Task[None]] = []

    async def forward(source: asyncio.StreamReader, pass_on: Callable[[bytes], object]) -> None:
        while data := await source.read(65536):
            pass_on(data)

    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, onward = await asyncio.open_connection(target["host"], target["port"])
        answers = asyncio.create_task(
            forward(far, lambda data: loop.call_later(delay_s[0], back.write, data))
        )
        with suppress(ConnectionError):
            await forward(near, onward.write)
        onward.close()
        await asyncio.wait({answers})
        back.close()

    server = await asyncio.start_server(
        lambda near, back: serving.append(asyncio.ensure_future(serve(near, back))), "127.0.0.1", 0
    )
    through = {**target, "port": server.sockets[0].getsockname()[1]}
    yield "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**through), delay_s
    server.close()
    await asyncio.gather(*serving)


async def assert_refused(*calls: Awaitable[object], cause: str) -> None:
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, NotSentError), error
        assert cause in error.detail


async def test_work_waits_for_a_connection_and_there_are_never_more_than_the_limit(
    database: Database,
):
    gate = Gate()
    pool = database.writing
    runs = [asyncio.create_task(pool.run(gate)) for _ in range(5 * WRITING.size)]
    await until(lambda: gate.inside == WRITING.size)
    assert (pool.in_use, database.in_use()["querying"]) == (WRITING.size, 0)
    gate.opened.set()
    assert len(set(await asyncio.gather(*runs))) == WRITING.size
    assert (gate.most_inside, pool.in_use) == (WRITING.size, 0)


async def test_work_that_waits_too_long_for_a_connection_is_refused(database: Database):
    gate = Gate()
    runs = [asyncio.create_task(database.writing.run(gate)) for _ in range(WRITING.size)]
    await until(lambda: gate.inside == WRITING.size)
    calls = (database.writing.run(select_1, within_s=0.1) for _ in range(3))
    await assert_refused(*calls, cause="does not answer")
    gate.opened.set()
    first = set(await asyncio.gather(*runs))
    gate.opened.clear()
    runs = [asyncio.create_task(database.writing.run(gate)) for _ in range(WRITING.size)]
    await until(lambda: gate.inside == WRITING.size)
    gate.opened.set()
    assert first == set(await asyncio.gather(*runs)), "waiting speaks against no connection"


async def test_who_cannot_open_another_connection_waits_for_one_that_is_at_work(
    database: Database, audit_database: AuditDatabase
):
    change = f"alter database {audit_database.name} connection limit"
    gate = Gate()
    first = asyncio.create_task(database.writing.run(gate))
    await until(lambda: gate.inside == 1)
    run_as(audit_database.superuser_url, f"{change} 1")
    second = asyncio.create_task(database.writing.run(select_1))
    await assert_refused(database.recovering.run(select_1), cause="no connection left")
    assert not second.done()
    gate.opened.set()
    assert await second == 1
    await first


async def test_a_refused_connection_says_why_and_no_log_has_the_password(
    audit_database: AuditDatabase,
    connect: Callable[..., Database],
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    password = conninfo_to_dict(audit_database.service_url)["password"]
    wrong = f"{password}-but-wrong"
    refused = connect(audit_database.service_url.replace(f":{password}@", f":{wrong}@"))
    calls = (pool.run(select_1) for pool in (refused.writing, refused.querying) for _ in range(4))
    await assert_refused(*calls, cause="refuses the password")
    assert await connect().writing.run(select_1) == 1
    assert "psycopg.pool" in {record.name for record in caplog.records}
    assert password not in caplog.text


async def test_a_server_that_answers_too_slowly_is_an_outage_until_it_is_fast_again(
    audit_database: AuditDatabase,
):
    async with slow_server(audit_database.service_url) as (url, delay_s):
        hasty, patient = (
            Database(url, patience=Patience(30.0, 0.5, 30.0)),
            Database(url, patience=PATIENT),
        )
        await until_works(hasty)
        delay_s[0] = 0.6
        for _ in range(3):
            await assert_refused(hasty.writing.run(select_1), cause="does not answer")
        assert await patient.writing.run(select_1) == 1
        delay_s[0] = 0.0
        await until_works(hasty)
        await asyncio.gather(hasty.close(), patient.close())


async def until_works(database: Database) -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(NotSentError):
                await database.writing.run(select_1)
                return


@pytest.mark.parametrize("server", ["works", "hangs"])
async def test_closing_leaves_no_task_behind(
    postgres: LocalPostgres, audit_database: AuditDatabase, server: str
):
    before = asyncio.all_tasks()
    database = Database(audit_database.service_url, patience=PROMPT)
    assert await database.writing.run(select_1) == 1
    if server == "hangs":
        postgres.pause()
    try:
        calls = [
            asyncio.create_task(pool.run(select_1)) for pool in (database.writing, database.denying)
        ]
        await asyncio.wait(calls, timeout=0.1)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await database.close()
    finally:
        postgres.resume()
    assert asyncio.all_tasks() == before
    await assert_refused(database.writing.run(select_1), cause="does not answer")
