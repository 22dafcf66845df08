"""The connections to one address: reused while they are good, bounded for each purpose."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from app.kafka.connection import BrokerConnection
from app.kafka.handshake import Address

_LONGEST_IDLE_S: Final = 540.0
"""Brokers close idle connections after ten minutes; a request must not meet that."""

_REAUTHENTICATION_MARGIN_S: Final = 30.0
"""A connection is not used so shortly before its SASL session ends. Source: KIP-368."""


class Purpose(Enum):
    """What a connection is for."""

    READ = auto()
    QUORUM = auto()
    ALTER = auto()
    LISTEN = auto()


MAX_CONNECTIONS: Final[Mapping[Purpose, int]] = {
    Purpose.READ: 8,
    Purpose.QUORUM: 8,
    Purpose.ALTER: 16,
    Purpose.LISTEN: 64,
}
"""How many there may be at once, so that what waits for a controller holds up no read."""


@dataclass(eq=False)
class BrokerLease:
    """A connection that belongs to one request until it is released, once.

    Attributes:
        connection: To the broker.
        broker_id: As the cluster's metadata has it; -1 for the request that asks for these.
        cluster_id: The same.
    """

    connection: BrokerConnection
    pool: "ConnectionPool"
    _slot: asyncio.Semaphore
    broker_id: int = -1
    cluster_id: str = ""

    async def become_listener(self) -> None:
        """Leave the slot to another request for one of the listeners', if any is free."""
        listeners = self.pool.slots[Purpose.LISTEN]
        if not listeners.locked():
            await listeners.acquire()
            self._slot.release()
            self._slot = listeners

    def release(self) -> None:
        """Return the connection; one with a request in flight is dropped."""
        self.pool.give_back(self.connection)
        self._slot.release()


class ConnectionPool:
    """Opens connections when none is idle; each purpose has a bound of its own.

    Args:
        address: Of the broker.
        dial: Opens a connection to it.
        lost: Called when the other side has ended one that waited for a request.
    """

    def __init__(
        self,
        address: Address,
        dial: Callable[[Address], Awaitable[BrokerConnection]],
        lost: Callable[[], None],
    ) -> None:
        self.address = address
        self.slots: Final = {
            purpose: asyncio.Semaphore(number) for purpose, number in MAX_CONNECTIONS.items()
        }
        self._dial = dial
        self._lost = lost
        self._open: set[BrokerConnection] = set()
        self._idle_since: dict[BrokerConnection, float] = {}
        self._retired: set[BrokerConnection] = set()

    @property
    def open(self) -> int:
        """How many connections are open, as far as the pool can tell."""
        return len(self._open)

    @property
    def idle(self) -> int:
        """How many of them wait for a request."""
        return len(self._idle_since)

    async def lease(self, slot: asyncio.Semaphore) -> BrokerLease:
        """Take an idle connection or open a new one, in an acquired slot of ``slots``.

        The slot is released where that fails.

        Raises:
            NotSentError: The broker cannot be reached.
        """
        try:
            return BrokerLease(self._take_idle() or await self._open_new(), self, slot)
        except BaseException:
            slot.release()
            raise

    def give_back(self, connection: BrokerConnection) -> None:
        """Keep a connection that can take another request, drop any other."""
        if connection.idle and connection not in self._retired:
            self._idle_since[connection] = asyncio.get_running_loop().time()
        else:
            connection.abort()

    def retire(self) -> None:
        """Use no connection any more that is open now; requests in flight go on to their end."""
        self._retired = set(self._open)
        for connection in list(self._idle_since):
            connection.abort()

    async def close(self) -> None:
        """Drop every connection and wait until they are gone."""
        lost = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        await asyncio.gather(*lost)

    def _take_idle(self) -> BrokerConnection | None:
        """Take the one that was used last, so that the surplus grows old."""
        now = asyncio.get_running_loop().time()
        while self._idle_since:
            connection, since = self._idle_since.popitem()
            session_ends = connection.expires_at
            if not connection.quiet:
                self._lost()
            elif now - since < _LONGEST_IDLE_S and (
                session_ends is None or now < session_ends - _REAUTHENTICATION_MARGIN_S
            ):
                return connection
            connection.abort()
        return None

    async def _open_new(self) -> BrokerConnection:
        connection = await self._dial(self.address)
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._forget(connection))
        return connection

    def _forget(self, connection: BrokerConnection) -> None:
        self._open.discard(connection)
        self._retired.discard(connection)
        if self._idle_since.pop(connection, None) is not None:
            self._lost()
