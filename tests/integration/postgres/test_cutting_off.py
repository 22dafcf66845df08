"""A call that Postgres does not answer is cut off, also where no file can be opened any more."""

import asyncio
import contextlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import text

from app.domain.alterations import Outcome
from app.domain.errors import NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.errors import CommitInDoubtError
from app.postgres.pool import Database, Lease
from tests.integration.postgres.calls import assert_unavailable, concluded, intent, stored
from tests.testkit.event_loops import until
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import AuditDatabase, intend

_COMMITS = (b"COMMIT", b"record_intents", b"append_events")


class CommitCutter:
    """Forwards bytes to Postgres until a commit comes by, or a statement that commits itself.

    Attributes:
        forwards: Whether that still reaches the server. Its answer does not come back:
            the client's connection is closed, or stays silent where it was swallowed.
        url: The database's URL through the proxy.
    """

    def __init__(self, url: str, *, forwards: bool) -> None:
        self.forwards = forwards
        self.url = ""
        self._target = conninfo_to_dict(url)
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_connect, "127.0.0.1", 0)
        target = {**self._target, "port": self._server.sockets[0].getsockname()[1]}
        self.url = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**target)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._server.close()
        await asyncio.gather(*self._tasks)

    def _on_connect(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.ensure_future(self._serve(near, back)))

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, onward = await asyncio.open_connection(self._target["host"], self._target["port"])
        answers = asyncio.create_task(_forward(far, back))
        data = await near.read(65536)
        while data and not any(commit in data for commit in _COMMITS):
            onward.write(data)
            data = await near.read(65536)
        answers.cancel()
        await asyncio.wait({answers})
        if data:
            await self._lose(data, far, onward)
        for writer in (onward, back):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _lose(
        self, commit: bytes, far: asyncio.StreamReader, onward: asyncio.StreamWriter
    ) -> None:
        if self.forwards:
            onward.write(commit)
            await far.read(1)
        else:
            await self._over.wait()


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)


@contextmanager
def no_file_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(first_free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("commits", [False, True])
async def test_a_silent_call_is_cut_off_where_no_file_can_be_opened(
    database: Database, commits: bool
):
    async def hang(lease: Lease) -> None:
        lease.commits = commits
        await lease.connection.execute(text("select pg_sleep(60)"))

    async def select_1(lease: Lease) -> object:
        return await lease.connection.scalar(text("select 1"))

    pool = database.writing
    assert await pool.run(select_1) == 1
    with no_file_left(), pytest.raises(CommitInDoubtError if commits else NotSentError):
        await pool.run(hang, within_s=0.3)
    await until(lambda: pool.in_use == 0)
    assert await pool.run(select_1) == 1


async def test_an_intent_whose_commit_is_not_answered_is_an_error_that_names_it(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    async with CommitCutter(audit_database.service_url, forwards=True) as cutter:
        behind = Database(cutter.url, patience=PROMPT)
        (error,) = await assert_unavailable(intend(PostgresJournal(behind), request))
        await behind.close()
    assert error.alteration_id == request.alteration_id
    record = await stored(journal, request)
    assert not record.concluded
    await journal.record_conclusion(concluded(request, Outcome.NOT_SENT, None))
    record = await stored(journal, request)
    assert record.results[0].outcome is Outcome.NOT_SENT


async def test_an_intent_whose_commit_was_swallowed_is_not_in_the_log(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    async with CommitCutter(audit_database.service_url, forwards=False) as cutter:
        behind = Database(cutter.url, patience=PROMPT)
        (error,) = await assert_unavailable(intend(PostgresJournal(behind), request))
        await behind.close()
    assert error.alteration_id == request.alteration_id
    assert await journal.alteration(request.alteration_id) is None


async def test_a_conclusion_whose_commit_is_not_answered_can_be_repeated(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    await intend(journal, request)
    async with CommitCutter(audit_database.service_url, forwards=True) as cutter:
        behind = Database(cutter.url, patience=PROMPT)
        await assert_unavailable(
            PostgresJournal(behind).record_conclusion(concluded(request, Outcome.NOT_SENT, None))
        )
        await behind.close()
    await journal.record_conclusion(concluded(request, Outcome.NOT_SENT, None))
    record = await stored(journal, request)
    assert record.concluded
