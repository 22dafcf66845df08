"""The service's connections: small pools with deadlines that hold whatever Postgres does."""

import asyncio
import math
import select
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import ExceptionContext, Executable, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import QueuePool

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
from app.service.ports.metrics import DependencyMetrics
from app.service.runtime.clock import USUAL, Patience

T = TypeVar("T")
Row = Any
"""A row as a named tuple of its columns."""

current_lease: Final[ContextVar["Lease | None"]] = ContextVar("current_lease", default=None)
"""The lease that the running task works for; a new connection reports to it."""

_LIMIT_STATEMENTS: Final = "select set_config('statement_timeout', %(limit)s, %(in_transaction)s)"

_WORTH_TELLING_S: Final = 0.5

SECONDS_PER_ROW: Final = 0.001
"""How much longer a write may take for each row."""


class Lease:
    """The loan of a connection until a deadline.

    Cancelling a psycopg call asks the server to stop and waits for its answer, which a hung server
    never gives. Cutting the socket ends the call at once, whatever the server does.

    Attributes:
        connection: Inside its transaction.
        driver: The same, as psycopg has it: an ``AsyncConnection``; null before the loan.
        deadline: By the event loop's clock.
        commits: Whether the work is done and its commit was begun.
    """

    connection: AsyncConnection

    def __init__(self, seconds: float) -> None:
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.commits = False
        self.driver: Any = None

    async def rows(
        self, statement: Executable | str, values: Mapping[str, Any] | None = None
    ) -> Sequence[Row]:
        """Return the rows of a statement of Core, or of SQL with ``%(name)s`` for each value.

        SQL goes to psycopg itself, which takes less CPU; a statement without rows returns none.
        """
        if not isinstance(statement, str):
            return (await self.connection.execute(statement)).all()
        cursor = await self.driver.cursor(row_factory=namedtuple_row).execute(statement, values)
        return await cursor.fetchall() if cursor.description else ()

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
        self, url: str, metrics: DependencyMetrics | None = None, patience: Patience = USUAL
    ) -> None:
        """Take a ``postgresql://`` URL, and who counts; nothing is connected yet.

        Raises:
            ValueError: The URL cannot be read.
        """
        counted = metrics or DependencyMetrics()
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
        """Close every connection."""
        for pool in self._pools:
            await pool.close()


class Pool:
    """Connections on loan, each to one transaction with a deadline."""

    def __init__(
        self, url: str, limits: Limits, metrics: DependencyMetrics, patience: Patience
    ) -> None:
        self.name = limits.name
        self._metrics = metrics
        self._patience = patience
        self._reports = limits.reports
        self._parameters = connection_parameters(url, limits, patience)
        self._engine = create_async_engine(
            "postgresql+psycopg://",
            async_creator=self._connect,
            pool_size=limits.size,
            max_overflow=0,
            pool_timeout=patience.database_answer_s,
            use_native_hstore=False,
            **({"isolation_level": "AUTOCOMMIT"} if limits.autocommit else {}),
        )
        self._usable: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()
        self._was_silent = False
        self._abandoned: set[asyncio.Task[Any]] = set()
        event.listen(self._engine.sync_engine, "handle_error", _keep_other_connections)
        event.listen(self._engine.sync_engine, "checkout", self._refuse_if_unusable)

    @property
    def in_use(self) -> int:
        """How many connections are at work."""
        pool = self._engine.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0

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
        try:
            while not task.done() and lease.remaining() > 0:
                await asyncio.wait({task}, timeout=lease.remaining())
            if task.done():
                done = task.result()
                self._was_silent = False
                return done
        except FAILURES as error:
            if sql_state(error) == READ_ONLY:  # a session keeps the settings that it began with
                self._usable.clear()
            if self._reports and sql_state(error) == ENDED:
                raise query_too_slow(within_s) from error
            raise failure(error, commits=lease.commits) from error
        finally:
            self._abandon(task, lease)
        raise failure(None, commits=lease.commits)

    async def rows(
        self,
        statement: Executable | str,
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
        await self._engine.dispose()

    async def _transaction(self, work: Work[T], lease: Lease) -> T:
        current_lease.set(lease)
        began = time.monotonic()
        try:
            connection = await self._engine.connect()
        finally:
            self._metrics.pool_wait_took(self.name, time.monotonic() - began)
        async with aclosing(connection):
            driver: Any = (await connection.get_raw_connection()).driver_connection
            lease.connection, lease.driver = connection, driver
            try:
                if self._reports:
                    own_s = lease.remaining() - _LONGER_S
                    await lease.limit_statements(own_s, in_transaction=False)
                done = await work(lease)
                lease.commits = True
                await driver.commit()
            except BaseException:
                with suppress(psycopg.Error):  # what was raised first tells more
                    await driver.rollback()
                raise
            finally:
                if driver.closed:
                    await connection.invalidate()
        return done

    async def _connect(self, **_ignored: object) -> psycopg.AsyncConnection[Any]:
        async with asyncio.timeout(self._patience.database_connect_s):
            driver = await psycopg.AsyncConnection.connect(**self._parameters)
        self._usable.add(driver)
        lease = current_lease.get()
        if lease is not None:
            lease.driver = driver
        return driver

    def _abandon(self, task: "asyncio.Task[Any]", lease: Lease) -> None:
        """Cut what has not ended off; twice in a row speaks against every connection there is."""
        if task.done():
            return
        if self._was_silent:
            self._usable.clear()
        self._was_silent = True
        self._abandoned.add(task)
        task.add_done_callback(self._forget)
        if not lease.cut():
            task.cancel()

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()

    def _refuse_if_unusable(self, adapted: Any, _record: object, _proxy: object) -> None:
        if adapted.driver_connection not in self._usable or _has_ended(adapted.driver_connection):
            raise DisconnectionError


def _keep_other_connections(context: ExceptionContext) -> None:
    """Keep the pool's other connections when one ends."""
    context.invalidate_pool_on_disconnect = False


def _has_ended(driver: psycopg.AsyncConnection[Any]) -> bool:
    """Tell whether the server closed an idle connection: then there is something to read."""
    if driver.closed:
        return True
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    return bool(poll.poll(0))
