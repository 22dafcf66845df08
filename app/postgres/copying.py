"""The two steps of every write: the log's own time, then all rows at once."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import psycopg
from psycopg import sql
from sqlalchemy import ColumnElement, func, literal_column, select

from app.postgres.event_rows import EventRow
from app.postgres.leases import Lease

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
