"""All connections: who gets one, who gives one up, and TLS handshakes that do not end."""

import asyncio
import errno
import logging
import resource
import socket
import ssl
import sys
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from app.http.rate_limits import network_of
from app.http.receiving import Slot, SlotGroup

OTHER_FILES: Final = 100
"""What the process needs besides: brokers, Postgres, files."""


def raise_fd_limit(wanted: int, besides: int = 0) -> int:
    """Return how many connections fit beside other files, after asking the system for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    other = OTHER_FILES + besides
    granted, needed = _number(soft), wanted + other
    if granted < needed:
        granted = min(needed, _number(hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    connections = max(1, min(wanted, granted - other))
    if connections < wanted:
        logger.warning("%d files may be open, so %d connections fit", granted, connections)
    return connections


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


HANDSHAKE_S: Final = 10.0
"""How long a TLS handshake may take, in seconds."""

_SHARE: Final = 4
"""One address has a quarter of the handshakes, so that others can begin theirs."""

_REFUSED_AT_ONCE: Final = 32
"""So many callers at a time are answered that there are too many connections; others are not."""

_PAUSE_S: Final = 0.1
"""How long nothing is accepted after the system had no descriptor left."""

_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be at a time.

    Attributes:
        all: TLS handshakes included.
        of_an_address: The same for each address (for IPv6, each network of 64 bits).
        handshakes: TLS handshakes that have begun.
        is_exempt: Tells whether an address may have all of them, such as a proxy's.
    """

    all: int = 1000
    of_an_address: int = 250
    handshakes: int = 200
    is_exempt: Callable[[str], bool] = lambda _address: False


class Connections:
    """Counts connections when they are accepted; where it is full, the oldest idle one goes first.

    Args:
        limits: How many there may be.
        count_dropped: Called with why a connection was closed: ``address``, ``handshakes``,
            ``all``, ``descriptors`` (evicted for another) or ``refused`` (itself).
    """

    def __init__(
        self, limits: ConnectionLimits, count_dropped: Callable[[str], None] = lambda _reason: None
    ) -> None:
        self._limits = limits
        self._count = count_dropped
        self._all, self._handshakes, self._refused = SlotGroup(), SlotGroup(), SlotGroup()
        self._of_address: WeakValueDictionary[str, SlotGroup] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._all.members)

    def admit(self, address: str, *, is_handshake: bool) -> Slot | None:
        """Return the slot of a new connection; null for one that is closed without a word."""
        own = self._of_address.setdefault(network_of(address), SlotGroup())
        is_exempt = self._limits.is_exempt(address)
        if self._evict_for(own, is_handshake=is_handshake, is_exempt=is_exempt):
            return Slot([self._all, own, self._handshakes] if is_handshake else [self._all, own])
        self._count("refused")
        if is_handshake or len(self._refused.members) >= _REFUSED_AT_ONCE:
            return None
        return Slot([self._refused], is_refused=True)

    def close_oldest_idle(self) -> None:
        """Close the connection that has been idle for longest: the system has no descriptors."""
        self._drop(self._all, "descriptors")

    def _evict_for(self, own: SlotGroup, *, is_handshake: bool, is_exempt: bool) -> bool:
        """Evict idle connections for a new one of an address; tell whether there is a slot."""
        limits, handshakes = self._limits, self._handshakes
        is_full = not is_exempt and len(own.members) >= limits.of_an_address
        if is_full and not self._drop(own, "address"):
            return False
        if is_handshake:
            begun = [] if is_exempt else [slot for slot in own.idle if slot in handshakes.members]
            if len(begun) >= max(1, limits.handshakes // _SHARE):
                self._close(begun[0], "handshakes")
            elif len(handshakes.members) >= limits.handshakes:
                self._drop(handshakes, "handshakes")
        return len(self._all.members) < limits.all or self._drop(self._all, "all")

    def _drop(self, group: SlotGroup, reason: str) -> bool:
        oldest = next(iter(group.idle), None)
        if oldest is not None:
            self._close(oldest, reason)
        return oldest is not None

    def _close(self, slot: Slot, reason: str) -> None:
        slot.end()
        self._count(reason)
        slot.close()


class Acceptor:
    """Accepts the connections of a listening socket; stands in for an ``asyncio.Server``.

    A server of asyncio counts nothing before TLS is agreed upon, and one of uvloop resets whoever
    waits where the process has no descriptor left.
    """

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        make: Callable[..., asyncio.Protocol],
        tls: ssl.SSLContext | None,
        backlog: int,
    ) -> None:
        self.sockets = (listening,)
        self._listening = listening
        self._connections = connections
        self._make = make
        self._tls = tls
        self._opening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        listening.setblocking(False)
        listening.listen(backlog)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accept no more; cancel handshakes that have begun."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until handshakes are cancelled."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _accept(self) -> None:
        """Accept one connection: those that are open already have a turn before the next one."""
        try:
            connection, (address, *_) = self._listening.accept()
        except OSError as error:
            if error.errno in _LACKS:
                self._pause(error)
            return
        connection.setblocking(False)
        slot = self._connections.admit(address, is_handshake=self._tls is not None)
        if slot is None:
            connection.close()
            return
        task = self._loop.create_task(self._open(connection, slot), context=Context())
        slot.close = task.cancel
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, slot: Slot) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(slot=slot),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
            )
        except (OSError, asyncio.CancelledError):
            slot.end()
            connection.close()

    def _pause(self, error: OSError) -> None:
        """Let the oldest idle connection go, and accept again soon."""
        logger.warning("a connection cannot be accepted: %s", error.strerror)
        self._connections.close_oldest_idle()
        self._loop.remove_reader(self._listening)
        self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)
