"""Statements of many rows: copying, arrays, joins by hash, one round trip for a transaction."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, cast

import psycopg
from psycopg import sql
from sqlalchemy import ColumnElement, func, literal_column, select

from app.postgres.payload import EventRow
from app.postgres.pool import Lease

MANY: Final = 500
"""From so many rows on, encoding and decoding leave the event loop."""

SECONDS_PER_ROW: Final = 0.001
"""How much longer a write may take for each row."""

FEW: Final = 16
"""Up to so many rows are inserted: COPY costs two journeys more than it saves."""

DURABLE: Final = """
    set_config('synchronous_commit', case current_setting('synchronous_commit')
      when 'remote_apply' then 'remote_apply' else 'on' end, true)
    """
"""Makes the transaction's commit wait for the disk, or longer where the server is set so."""

durable: Final[ColumnElement[str]] = literal_column(DURABLE)
"""The same, for the queries that are put together."""

_COLUMNS: Final = sql.SQL(", ").join(sql.Identifier(name) for name in EventRow._fields)
_COPY: Final = sql.SQL("copy audit_event ({}) from stdin").format(_COLUMNS)
_INSERT: Final = sql.SQL("insert into audit_event ({}) values ({})").format(
    _COLUMNS, sql.SQL(", ").join([sql.Placeholder()] * len(EventRow._fields))
)


async def log_time(lease: Lease) -> datetime:
    """Return the time of the database; the commit that follows will be durable."""
    row = (await lease.connection.execute(select(func.clock_timestamp(), durable))).one()
    now: datetime = row[0]
    return now


async def copy_rows(lease: Lease, rows: Iterable[EventRow], number: int) -> None:
    """Write the rows; about ``number`` of them, so that many get the time they need."""
    await lease.extend(number * SECONDS_PER_ROW)
    if number <= FEW:
        await lease.driver.cursor().executemany(_INSERT, list(rows))
        return
    ready = await asyncio.to_thread(list, rows) if number >= MANY else rows
    driver: psycopg.AsyncConnection[object] = lease.driver
    async with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
        for row in ready:
            await copy.write_row(row)


def bytes_array(items: Iterable[bytes]) -> str:
    """Return bytes as the text of a ``bytea[]``."""
    return "{" + ",".join(f'"\\\\x{item.hex()}"' for item in items) + "}"


def integer_array(items: Iterable[int]) -> str:
    """Return integers as the text of a ``smallint[]`` or a larger kind."""
    return "{" + ",".join(map(str, items)) + "}"


_BY_HASH: Final = (
    "select set_config('enable_hashjoin', 'on', true), set_config('enable_nestloop', 'off', true)"
)
_AS_BEFORE: Final = (
    "select set_config('enable_hashjoin', 'off', true), set_config('enable_nestloop', 'on', true)"
)


@asynccontextmanager
async def joined_by_hash(number: int, lease: Lease) -> AsyncIterator[None]:
    """Let the block's statements join so many rows with a table by hash, if they are many.

    Slots come and go with each alteration. Where the planner believes that there is none, it
    compares each with each: 10,000 took 10 s, and take 0.1 s by hash.
    """
    if number < MANY:
        yield
        return
    await lease.driver.execute(_BY_HASH)
    yield
    await lease.driver.execute(_AS_BEFORE)


async def committed(
    statement: str, parameters: Mapping[str, Any], lease: Lease
) -> Sequence[tuple[Any, ...]]:
    """Execute and commit; return the rows.

    The commit is in doubt from the first byte on until the server has answered; an error that the
    server tells is an answer, and nothing was committed then.

    Raises:
        psycopg.Error: As the server says, or that the connection has ended.
    """
    driver = cast("psycopg.AsyncConnection[Any]", lease.driver)
    await driver.set_autocommit(True)
    lease.commits = True
    try:
        cursor = await driver.execute(statement, parameters)
        return await cursor.fetchall()
    except psycopg.Error:
        lease.commits = driver.closed
        raise
    finally:
        if not driver.closed:
            await driver.set_autocommit(False)
