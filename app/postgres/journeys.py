"""A transaction of one statement: it begins, works and commits in one journey to the server."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import psycopg

from app.postgres.leases import Lease


async def committed(
    statement: str, parameters: Mapping[str, Any], lease: Lease
) -> Sequence[tuple[Any, ...]]:
    """Execute and commit; return the rows.

    As the commit travels with the statement, it is in doubt from the first byte on until the server
    has answered; an error that the server tells is an answer, and nothing was committed then.

    Raises:
        psycopg.Error: As the server says, or that the connection has ended.
    """
    driver = cast("psycopg.AsyncConnection[Any]", lease.driver)
    lease.commits = True
    try:
        async with driver.pipeline():
            cursor = await driver.execute(statement, parameters)
            await driver.commit()
            return await cursor.fetchall()
    except psycopg.Error:
        lease.commits = driver.closed
        raise
