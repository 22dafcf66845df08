"""A call that Postgres does not answer is cut off, also where no file can be opened any more."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from app.domain.errors import NotSentError
from app.postgres.errors import CommitInDoubtError
from app.postgres.pool import Database, Lease
from tests.testkit.kafka import until


@contextmanager
def no_file_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.dup(0)
    os.close(first_free)
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

    async def one(lease: Lease) -> object:
        return await lease.connection.scalar(text("select 1"))

    pool = database.writing
    assert await pool.run(one) == 1
    with no_file_left(), pytest.raises(CommitInDoubtError if commits else NotSentError):
        await pool.run(hang, within_s=0.3)
    await until(lambda: pool.in_use == 0)
    assert await pool.run(one) == 1
