"""A transaction of one statement, which the server commits with it: one journey there and back."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import psycopg

from app.postgres.leases import Lease


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
