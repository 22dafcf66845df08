"""The service's connections: small pools with deadlines that hold whatever Postgres does."""

import asyncio
import math
import select
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.rows import namedtuple_row
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import ClauseElement, make_url

from app.metrics import DatabaseMetrics
from app.postgres.connect import (
    DENYING,
    LEADING,
    QUERYING,
    RECOVERING,
    WRITING,
    Limits,
    connection_parameters,
)
from app.postgres.errors import ENDED, FAILURES, READ_ONLY, failure, query_too_slow, sql_state
from app.service.runtime.clock import USUAL, Patience

T = TypeVar("T")
Row = Any
"""A row as a named tuple of its columns."""

_DIALECT: Final = make_url("postgresql+psycopg://").get_dialect()()

_LIMIT_STATEMENTS: Final = "select set_config('statement_timeout', %(limit)s, %(in_transaction)s)"

_WORTH_TELLING_S: Final = 0.5

SECONDS_PER_ROW: Final = 0.001
"""How much longer a write may take for each row."""


class Connection(psycopg.AsyncConnection[Row]):
    """A connection of a pool.

    Attributes:
        connected_at: By the monotonic clock.
    """

    connected_at: float

    @classmethod
    async def connect(cls, conninfo: str = "", **parameters: Any) -> "Connection":
        """Connect as psycopg does.

        Args:
            conninfo: As libpq takes it.
            parameters: Those of psycopg; ``within_s``, the seconds until Postgres has accepted;
                and ``failed``, which is called with the error.
        """
        within_s, failed = parameters.pop("within_s"), parameters.pop("failed")
        connection: Connection | None = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    connection = await super().connect(conninfo, **parameters)
            if connection is None:  # the first error would keep the attempt's socket open
                raise TimeoutError
        except FAILURES as error:
            failed(error)
            raise
        connection.connected_at = time.monotonic()
        return connection

    def has_ended(self) -> bool:
        """Tell whether the server closed it while it was idle: then there is something to read."""
        if self.closed:
            return True
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(0))


class Lease:
    """The loan of a connection until a deadline.

    Cancelling a psycopg call asks the server to stop and waits for its answer, which a hung server
    never gives. Cutting the socket ends the call at once, whatever the server does.

    Attributes:
        driver: The connection, inside its transaction; null before the loan and after it.
        deadline: By the event loop's clock.
        commits: Whether the work is done and its commit was begun.
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.commits = False
        self.driver: Any = None

    async def rows(
        self, statement: ClauseElement | str, values: Mapping[str, Any] | None = None
    ) -> Sequence[Row]:
        """Return the rows of a statement of Core, or of SQL with ``%(name)s`` for each value.

        A statement without rows returns none.
        """
        if not isinstance(statement, str):
            composed = statement.compile(
                dialect=_DIALECT, compile_kwargs={"render_postcompile": True}
            )
            statement, values = str(composed), composed.params
        cursor = await self.driver.execute(statement, values)
        return await cursor.fetchall() if cursor.description else ()

    async def call(self, statement: str, parameters: Mapping[str, Any], *, commit: bool) -> Row:
        """Call a function that returns one row; ``commit`` in one round trip that also commits.

        The commit is in doubt from the first byte on until the server has answered. An error from
        the server is an answer, and nothing was committed then.

        Raises:
            psycopg.Error: The server reports an error, or the connection has ended.
        """
        driver = self.driver
        if not commit or driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            return (await self.rows(statement, parameters))[0]
        await driver.set_autocommit(True)
        self.commits = True
        try:
            return (await self.rows(statement, parameters))[0]
        except psycopg.Error:
            self.commits = driver.closed
            raise
        finally:
            if not driver.closed:
                await driver.set_autocommit(False)

    async def extend(self, seconds: float) -> None:
        """Allow more time, once the server has answered.

        The server's own limit is for one statement of few rows; it grows along.
        """
        self.deadline += seconds
        if seconds >= _WORTH_TELLING_S:
            await self.limit_statements(self.remaining(), in_transaction=True)

    async def limit_statements(self, seconds: float, *, in_transaction: bool) -> None:
        """Let Postgres itself end what takes longer: in this transaction, or in the session."""
        limit = {"limit": f"{math.ceil(1000 * max(seconds, 0.001))}ms"}
        await self.rows(_LIMIT_STATEMENTS, {**limit, "in_transaction": in_transaction})

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return self.deadline - asyncio.get_running_loop().time()

    def cut(self) -> bool:
        """Cut the connection's socket; tell whether there was one.

        No file is opened for that: there may be none left to open.
        """
        if self.driver is None or self.driver.closed:
            return False
        borrowed = socket.socket(fileno=self.driver.fileno())
        try:
            with suppress(OSError):  # the server was first: it has reset the connection
                borrowed.shutdown(socket.SHUT_RDWR)
        finally:
            borrowed.detach()
        return True


_LONGER_S: Final = 1.0
"""So that Postgres itself ends a read that takes too long, and the connection stays good."""

_CLOSING_S: Final = 1.0
"""A task of the pool that is connecting when the pool is closed has so much longer to end."""

Work = Callable[[Lease], Awaitable[T]]


class Database:
    """Kinds of work do not share connections: a slow report cannot starve an intent.

    Attributes:
        writing: Intents, conclusions, keys.
        recovering: Recovery, drift and heartbeats.
        querying: What people ask for; reports may be slow.
        denying: Records of denied attempts, which must not delay anything else.
        leading: One connection that keeps its session, for locks that one process has.
        patience: How long Postgres may take.
    """

    def __init__(
        self, url: str, metrics: DatabaseMetrics | None = None, patience: Patience = USUAL
    ) -> None:
        """Take a ``postgresql://`` URL, and who counts; nothing is connected yet.

        Raises:
            ValueError: The URL cannot be read.
        """
        counted = metrics or DatabaseMetrics()
        self.patience = patience
        self._pools = tuple(
            Pool(url, limits, counted, patience)
            for limits in (WRITING, RECOVERING, QUERYING, DENYING, LEADING)
        )
        self.writing, self.recovering, self.querying, self.denying, self.leading = self._pools

    def in_use(self) -> Mapping[str, int]:
        """Return how many connections are at work, by pool."""
        return {pool.name: pool.in_use for pool in self._pools}

    async def close(self) -> None:
        """Close every connection; no task is left."""
        await asyncio.gather(*(pool.close() for pool in self._pools))


class Pool:
    """Connections on loan, each to one transaction with a deadline.

    Tasks of ``psycopg_pool`` open connections when they are wanted; a transaction waits for one no
    longer than its deadline.
    """

    def __init__(
        self, url: str, limits: Limits, metrics: DatabaseMetrics, patience: Patience
    ) -> None:
        self.name = limits.name
        self._metrics = metrics
        self._patience = patience
        self._reports = limits.reports
        self._pool = AsyncConnectionPool(
            connection_class=Connection,
            kwargs={
                **connection_parameters(url, limits, patience),
                "autocommit": limits.autocommit,
                "row_factory": namedtuple_row,
                "within_s": patience.database_connect_s,
                "failed": self._remember,
            },
            name=limits.name,
            min_size=0,
            max_size=limits.size,
            max_lifetime=limits.lifetime_s,
            open=False,
            check=self._check,
            reconnect_timeout=0,  # whoever comes next tries again
            reconnect_failed=self._refuse,
        )
        self._waiting: set[asyncio.Task[Any]] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._refusal: BaseException | None = None
        self._doubted_at = -math.inf
        self._was_silent = False

    @property
    def in_use(self) -> int:
        """How many connections are at work, or being opened."""
        stats = self._pool.get_stats()
        return stats["pool_size"] - stats["pool_available"]

    async def run(self, work: Work[T], *, within_s: float | None = None) -> T:
        """Do the work in one transaction, committed when it returns.

        Args:
            work: Called with the lease of the connection.
            within_s: How long it may take, in seconds; null is ``database_answer_s``.

        Raises:
            NotSentError: Postgres failed, or was silent for so long.
            QuotaError: Postgres refused what it was asked for: a fault of this service.
            CommitInDoubtError: It did so during the commit.
        """
        within_s = self._patience.database_answer_s if within_s is None else within_s
        lease = Lease(within_s + (_LONGER_S if self._reports else 0.0))
        task = asyncio.create_task(self._transaction(work, lease))
        self._waiting.add(task)
        try:
            while not task.done() and lease.remaining() > 0:
                await asyncio.wait({task}, timeout=lease.remaining())
            if task.cancelled():
                raise failure(self._refusal) from self._refusal
            if task.done():
                done = task.result()
                self._was_silent = False
                return done
        except FAILURES as error:
            if sql_state(error) == READ_ONLY:  # a session keeps the settings that it began with
                self._doubted_at = time.monotonic()
            if self._reports and sql_state(error) == ENDED:
                raise query_too_slow(within_s) from error
            raise failure(error, commits=lease.commits) from error
        finally:
            self._abandon(task, lease)
        raise failure(None, commits=lease.commits)

    async def rows(
        self,
        statement: ClauseElement | str,
        values: Mapping[str, Any] | None = None,
        *,
        within_s: float | None = None,
    ) -> Sequence[Row]:
        """Return the rows of one statement, a transaction of its own.

        Raises:
            QuotaError: As ``run``.
        """
        return await self.run(lambda lease: lease.rows(statement, values), within_s=within_s)

    async def close(self) -> None:
        """Close every connection, after cutting off what still runs."""
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        await self._pool.close(timeout=self._patience.database_connect_s + _CLOSING_S)

    async def _transaction(self, work: Work[T], lease: Lease) -> T:
        driver = await self._borrow(lease)
        try:
            async with driver:
                lease.driver = driver
                if self._reports:
                    own_s = lease.remaining() - _LONGER_S
                    await lease.limit_statements(own_s, in_transaction=False)
                done = await work(lease)
                lease.commits = True
        finally:
            lease.driver = None
            await self._pool.putconn(driver)
        return done

    async def _borrow(self, lease: Lease) -> Connection:
        began = time.monotonic()
        try:
            await self._pool.open()
            return await self._pool.getconn(timeout=lease.remaining())
        finally:
            self._waiting.discard(asyncio.current_task())
            self._metrics.pool_wait_took(self.name, time.monotonic() - began)

    async def _check(self, connection: Connection) -> None:
        """Refuse a connection that is of no use any more, and open every idle one anew.

        A server that has closed one was most likely restarted.

        Raises:
            psycopg.OperationalError: It was refused.
        """
        if connection.connected_at > self._doubted_at and not connection.has_ended():
            return
        await connection.close()
        await self._pool.drain()
        raise psycopg.OperationalError

    def _remember(self, error: BaseException) -> None:
        self._refusal = error

    def _refuse(self, pool: AsyncConnectionPool[Connection]) -> None:
        """Tell who waits why there is no connection, unless one is at work and comes back."""
        if pool.get_stats()["pool_size"] == 0:
            for task in self._waiting:
                task.cancel()

    def _abandon(self, task: "asyncio.Task[Any]", lease: Lease) -> None:
        """Cut off what has not ended; twice in a row speaks against every connection there is."""
        if task.done():
            return
        self._abandoned.add(task)
        task.add_done_callback(self._forget)
        if task in self._waiting:
            task.cancel()
        elif lease.cut():
            if self._was_silent:
                self._doubted_at = time.monotonic()
            self._was_silent = True

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()
