"""A connection that the broker has ended is told of, however that is noticed."""

import asyncio
from typing import Any

from app.kafka.pool import ConnectionPool


class Connection:
    """A connection as far as the pool goes."""

    def __init__(self) -> None:
        self.idle = self.quiet = True
        self.expires_at: float | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def abort(self) -> None:
        """End."""
        if not self.lost.done():
            self.lost.set_result(None)


def pool_with(told: list[str]) -> ConnectionPool:
    async def dial() -> Any:
        return Connection()

    return ConnectionPool(dial, lambda: told.append("lost"))


async def test_one_that_ends_while_it_waits_is_told_of():
    told: list[str] = []
    pool = pool_with(told)
    connection: Any = await pool.connection()
    pool.give_back(connection)
    connection.abort()
    await asyncio.sleep(0)
    assert (told, pool.open, pool.idle) == (["lost"], 0, 0)


async def test_one_whose_end_was_not_noticed_yet_is_told_of_before_another_is_opened():
    told: list[str] = []
    pool = pool_with(told)
    connection: Any = await pool.connection()
    pool.give_back(connection)
    connection.quiet = False
    assert await pool.connection() is not connection
    assert told == ["lost"]


async def test_one_that_the_pool_ends_itself_is_not_told_of():
    told: list[str] = []
    pool = pool_with(told)
    connection: Any = await pool.connection()
    connection.expires_at = 0.0
    pool.give_back(connection)
    assert await pool.connection() is not connection
    await asyncio.sleep(0)
    assert (told, pool.open) == ([], 1)
