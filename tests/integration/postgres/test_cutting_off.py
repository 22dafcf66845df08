"""A call that Postgres does not answer is cut off, also where no file can be opened any more."""

import asyncio
import contextlib
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from psycopg.conninfo import conninfo_to_dict

from app.domain.alterations import Outcome
from app.domain.errors import NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.errors import CommitInDoubtError
from app.postgres.pool import Database, Lease
from tests.integration.postgres.calls import assert_unavailable, concluded, intent, stored
from tests.testkit.event_loops import until
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import AuditDatabase, intend, record_conclusion

_COMMITS = (b"COMMIT", b"record_intents", b"record_conclusions")


@asynccontextmanager
async def cut_off_at_commit(url: str, *, forwards: bool) -> AsyncIterator[PostgresJournal]:
    """Keep a log whose connections end at a commit, or a statement that commits itself.

    Args:
        url: Of the database.
        forwards: Whether that still reaches the server. Its answer does not come back: the
            connection is closed, or stays silent where it was swallowed.
    """
    target = conninfo_to_dict(url)
    over = asyncio.Event()
    serving: list[asyncio.Task[None]] = []

    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, onward = await asyncio.open_connection(target["host"], target["port"])
        answers = asyncio.create_task(_forward(far, back))
        data = await near.read(65536)
        while data and not any(commit in data for commit in _COMMITS):
            onward.write(data)
            data = await near.read(65536)
        answers.cancel()
        await asyncio.wait({answers})
        if data and forwards:
            onward.write(data)
            await far.read(1)
        elif data:
            await over.wait()
        for writer in (onward, back):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def connected(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        serving.append(asyncio.ensure_future(serve(near, back)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    through = {**target, "port": server.sockets[0].getsockname()[1]}
    database = Database(
        "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**through), patience=PROMPT
    )
    yield PostgresJournal(database)
    await database.close()
    over.set()
    server.close()
    await asyncio.gather(*serving)


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
        await lease.rows("select pg_sleep(60)")

    async def select_1(lease: Lease) -> object:
        return (await lease.rows("select 1"))[0][0]

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
    async with cut_off_at_commit(audit_database.service_url, forwards=True) as behind:
        (error,) = await assert_unavailable(intend(behind, request))
    assert error.alteration_id == request.alteration_id
    record = await stored(journal, request)
    assert not record.concluded
    await record_conclusion(journal, concluded(request, Outcome.NOT_SENT, None))
    record = await stored(journal, request)
    assert record.results[0].outcome is Outcome.NOT_SENT


async def test_an_intent_whose_commit_was_swallowed_is_not_in_the_log(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    async with cut_off_at_commit(audit_database.service_url, forwards=False) as behind:
        (error,) = await assert_unavailable(intend(behind, request))
    assert error.alteration_id == request.alteration_id
    assert await journal.alteration(request.alteration_id) is None


async def test_a_conclusion_whose_commit_is_not_answered_can_be_repeated(
    audit_database: AuditDatabase, journal: PostgresJournal
):
    request = intent()
    await intend(journal, request)
    unsent = concluded(request, Outcome.NOT_SENT, None)
    async with cut_off_at_commit(audit_database.service_url, forwards=True) as behind:
        await assert_unavailable(record_conclusion(behind, unsent))
    await record_conclusion(journal, unsent)
    assert (await stored(journal, request)).concluded
