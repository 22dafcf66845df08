"""A connection on loan to one piece of work, which can be cut off when the server hangs."""

import asyncio
import math
import socket
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

current_lease: Final[ContextVar["Lease | None"]] = ContextVar("current_lease", default=None)
"""The lease that the running task works for; a new connection reports to it."""

_LIMIT_STATEMENTS: Final = text("select set_config('statement_timeout', :limit, true)")

_WORTH_TELLING_S: Final = 0.5


class Lease:
    """The loan of a connection until a deadline.

    Cancelling a psycopg call asks the server to stop and waits for its answer, which a hung server
    never gives. Cutting the socket ends the call at once, whatever the server does.

    Attributes:
        deadline: By the event loop's clock.
        commits: Whether the work is done and its commit was begun.
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.commits = False
        self._connection: AsyncConnection | None = None
        self._driver: psycopg.AsyncConnection[object] | None = None

    @property
    def connection(self) -> AsyncConnection:
        """The connection, inside its transaction."""
        if self._connection is None:
            message = "the lease has no connection yet"
            raise RuntimeError(message)
        return self._connection

    @property
    def driver(self) -> psycopg.AsyncConnection[object]:
        """The driver's own connection."""
        if self._driver is None:
            message = "the lease has no connection yet"
            raise RuntimeError(message)
        return self._driver

    async def extend(self, seconds: float) -> None:
        """Allow more time, once the server has shown that it answers.

        The server's own limit is for one statement of few rows; it grows along.
        """
        self.deadline += seconds
        if seconds >= _WORTH_TELLING_S:
            limit = {"limit": f"{math.ceil(1000 * self.remaining())}ms"}
            await self.connection.execute(_LIMIT_STATEMENTS, limit)

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return self.deadline - asyncio.get_running_loop().time()

    def hold_driver(self, driver: psycopg.AsyncConnection[object]) -> None:
        """Take note of the connection that is to be cut."""
        self._driver = driver

    async def hold(self, connection: AsyncConnection) -> None:
        """Take note of the connection to work with."""
        self._connection = connection
        raw = await connection.get_raw_connection()
        driver = raw.driver_connection
        if not isinstance(driver, psycopg.AsyncConnection):
            message = "not a psycopg connection"
            raise TypeError(message)
        self._driver = driver

    def release(self) -> None:
        """Forget the connection: it is the pool's again."""
        self._connection = self._driver = None

    def cut(self) -> bool:
        """Cut the connection's socket; tell whether there was one.

        No file is opened for that: there may be none left to open.
        """
        if self._driver is None or self._driver.closed:
            return False
        borrowed = socket.socket(fileno=self._driver.fileno())
        try:
            with suppress(OSError):  # the server was first: it has reset the connection
                borrowed.shutdown(socket.SHUT_RDWR)
        finally:
            borrowed.detach()
        return True
