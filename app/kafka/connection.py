"""Connections to one broker, pooled: a request is sent, its response comes back, one at a time.

Brokers handle the requests of a connection one after the other, so a second request would only
wait behind the first. How far a request got is exact: ``send`` raises before a byte of it
reached the socket, and afterwards a failure is an ``AnswerLostError``. ``ask`` is for small
requests, in kafka-python's messages.
"""

import asyncio
import select
import signal
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, cast

from kafka import __version__
from kafka.protocol.api_key import ApiKey
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from app.domain.errors import NotSentError, UnsupportedVersionError
from app.kafka.config import CLIENT_ID, Address
from app.kafka.errors import AnswerLostError, Loss, code_name, unreachable
from app.metrics import BrokerMetrics, KafkaResult
from app.service.ports.brokers import STANDSTILL_S

LARGEST_ANSWER_BYTES: Final = 500_000_000
"""The largest describe-all that is read: about five million entities."""

LARGEST_END_BYTES: Final = 4096
"""How much of a request is held back until the last look at the clock; a socket takes it at once.
"""

UNACKNOWLEDGED_S: Final = 4.0
"""Whatever a broker's host has not acknowledged for so long never arrives: the connection ends."""

_TAKEN_POLL_S: Final = 0.001
_LENGTH_BYTES: Final = 4
_CORRELATION_BYTES: Final = 4
_LARGEST_CORRELATION_ID: Final = 2**31 - 1


class BrokerConnection(asyncio.Protocol):
    """A connection, from the first byte on; ``app.kafka.handshake`` makes it ready for use."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.metadata_version: int | None = None
        self.expires_at: float | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._socket: asyncio.Transport | None = None
        self._begun = 0
        self._received = bytearray()
        self._answer: asyncio.Future[bytearray] | None = None
        self._correlation_id = 0
        self._limit = 0
        self._metrics = metrics
        self._asked = ""
        self._asked_at = 0.0

    @property
    def idle(self) -> bool:
        """Whether a request can be handed over."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        return self._answer is None and not self._begun

    @property
    def quiet(self) -> bool:
        """Whether the connection is idle and the broker has sent nothing since its last answer.

        What it says then is that it has closed, which the event loop may not have seen yet.
        """
        return self.idle and not self._is_ready(select.POLLIN)

    def _is_ready(self, event: int) -> bool:
        if self._transport is None:
            return False
        ready = select.poll()
        ready.register(self._transport.get_extra_info("socket").fileno(), event)
        return bool(ready.poll(0))

    def next_correlation_id(self) -> int:
        """Return the id that the next request must carry."""
        self._correlation_id = self._correlation_id % _LARGEST_CORRELATION_ID + 1
        return self._correlation_id

    async def encrypt(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from now on.

        Raises:
            OSError: The two sides do not agree, or the connection ends.
        """
        if self._socket is None:
            raise ConnectionResetError
        self._transport = await asyncio.get_running_loop().start_tls(
            self._socket, self, context, server_hostname=host
        )

    async def begin(self, frame: bytes) -> None:
        """Send all of a request but its end, and wait until the system has taken that.

        A broker does nothing about a request that it has not got to its end.

        Raises:
            NotSentError: The connection is closed.
        """
        if self._transport is None or not self.quiet:
            raise _connection_closed()
        self._begun = max(0, len(frame) - LARGEST_END_BYTES)
        if not self._begun:
            return
        self._transport.write(memoryview(frame)[: self._begun])
        while True:
            is_taken = not self._is_waiting_to_send() and self._is_ready(select.POLLOUT)
            if is_taken or self._transport.is_closing():
                return
            await asyncio.sleep(_TAKEN_POLL_S)

    def end(self, frame: bytes, largest_answer: int) -> asyncio.Future[bytearray]:
        """Hand the end of a request that was begun over, now or never; return its answer to come.

        Raises:
            NotSentError: The connection is closed, or does not take it now.
        """
        answer = self.send(frame, largest_answer)
        if self._is_waiting_to_send():
            self._answer = None
            self.abort()
            raise _connection_closed()
        return answer

    def _is_waiting_to_send(self) -> bool:
        layers = {self._transport, self._socket} - {None}
        return any(layer.get_write_buffer_size() for layer in layers if layer is not None)

    def send(self, frame: bytes, largest_answer: int) -> asyncio.Future[bytearray]:
        """Hand a whole request, its length first, to the socket; return its answer to come.

        The answer starts at its correlation id. It fails with ``AnswerLostError``, and the
        connection is of no more use then.

        Raises:
            NotSentError: The connection is closed; the broker cannot have the request.
        """
        begun, self._begun = self._begun, 0
        if self._transport is None or not self.idle:
            raise _connection_closed()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytearray] = loop.create_future()
        self._answer, self._limit = answer, largest_answer
        self._asked, self._asked_at = ApiKey(int.from_bytes(frame[4:6], "big")).name, loop.time()
        self._transport.write(memoryview(frame)[begun:])
        if self._transport.is_closing():
            # The socket refused the very first write, so no whole request can have left.
            self._answer = None
            raise _connection_closed()
        return answer

    def note_error(self, name: str) -> None:
        """Count an error in the last answer, by Kafka's name."""
        self._metrics.kafka_error_came(self._asked, name)

    def abort(self) -> None:
        """Drop the connection, whatever is in flight."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. Called by the event loop."""
        self._transport = self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(high=0)  # uvloop writes later otherwise
        tcp = transport.get_extra_info("socket")
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            unacknowledged_ms = int(1000 * UNACKNOWLEDGED_S)
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits. Called by the event loop."""
        self._lose(Loss.CLOSED, f"The connection was closed ({exc})." if exc else "It was closed.")
        self._transport = self._socket = None
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Collect one answer. Called by the event loop."""
        self._received += data
        if self._answer is None:
            self._lose(Loss.UNREADABLE, "The broker spoke without being asked.")
        elif len(self._received) >= _LENGTH_BYTES:
            self._measure(int.from_bytes(self._received[:_LENGTH_BYTES], "big", signed=True))

    def _measure(self, announced: int) -> None:
        arrived = len(self._received) - _LENGTH_BYTES
        if announced > self._limit:
            detail = f"The answer has {announced} bytes; {self._limit} are the most."
            self._lose(Loss.TOO_LARGE, detail)
        elif announced < _CORRELATION_BYTES or arrived > announced:
            detail = f"The broker announced {announced} bytes and sent {arrived}."
            self._lose(Loss.UNREADABLE, detail)
        elif arrived == announced:
            self._complete()

    def _complete(self) -> None:
        frame, self._received = self._received, bytearray()
        del frame[:_LENGTH_BYTES]
        if int.from_bytes(frame[:_CORRELATION_BYTES], "big", signed=True) != self._correlation_id:
            self._lose(Loss.UNREADABLE, "The broker answered to another request.")
        elif self._answer is not None:
            answer, self._answer = self._answer, None
            self._note_end(KafkaResult.ANSWERED)
            if not answer.done():
                answer.set_result(frame)

    def _lose(self, loss: Loss, detail: str) -> None:
        self._received = bytearray()
        answer, self._answer = self._answer, None
        if answer is not None:
            self._note_end(KafkaResult.ABANDONED if answer.done() else KafkaResult.LOST)
        if answer is not None and not answer.done():
            answer.set_exception(AnswerLostError(loss, detail))
        self.abort()

    def _note_end(self, result: KafkaResult) -> None:
        seconds = asyncio.get_running_loop().time() - self._asked_at
        self._metrics.kafka_request_took(self._asked, result, seconds)


def _connection_closed() -> NotSentError:
    return unreachable("The broker has closed the connection.")


_API_VERSIONS_VERSION: Final = 3
_UNSUPPORTED_VERSION: Final = 35
_SMALL_ANSWER_BYTES: Final = 131_072
_NOT_DECODABLE: Final = (ValueError, LookupError, TypeError, AssertionError, struct.error)
"""What kafka-python raises on bytes that are no answer."""


def framed(request: Any, version: int, correlation_id: int) -> bytes:
    """Encode a whole request, its length and header first.

    Raises:
        ValueError: A text is not Unicode, such as a lone surrogate.
        struct.error: A text is longer than the protocol can say.
    """
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=CLIENT_ID)
    return bytes(request.encode(header=True, framed=True))


def newest_common(connection: BrokerConnection, request: Any) -> int:
    """Return the newest version of a request, or of its class, that both sides have.

    Raises:
        UnsupportedVersionError: There is none.
    """
    offered = connection.api_versions.get(request.API_KEY)
    if offered is None or offered[0] > request.max_version:
        detail = (
            f"The broker does not offer {request.name} in a version that this service speaks; "
            "it may be older than Kafka 2.6."
        )
        raise UnsupportedVersionError(detail, kafka_error="UNSUPPORTED_VERSION")
    return int(min(offered[1], request.max_version))


async def ask(
    connection: BrokerConnection,
    request: Any,
    response: Any,
    *,
    version: int | None = None,
    largest_answer: int = _SMALL_ANSWER_BYTES,
) -> Any:
    """Send a request and return the answer, decoded by the ``response`` class.

    Its error code is counted. The version is the newest one that both sides have, if none is named.

    Raises:
        AnswerLostError: No answer, or none that can be read.
        NotSentError: The connection is closed.
        UnsupportedVersionError: There is no version that both sides have.
    """
    if version is None:
        version = newest_common(connection, request)
    frame = framed(request, version, connection.next_correlation_id())
    payload = await connection.send(frame, largest_answer)
    try:
        answer = response.decode(bytes(payload), version=version, header=True)
    except _NOT_DECODABLE as error:
        detail = f"The broker's answer to {request.name} cannot be read."
        raise AnswerLostError(Loss.UNREADABLE, detail) from error
    if error_code := getattr(answer, "error_code", 0):
        connection.note_error(code_name(error_code))
    return answer


async def api_versions(connection: BrokerConnection) -> Any:
    """Ask what the broker speaks; brokers before 2.4 want version 0. Source: KIP-511.

    Raises:
        AnswerLostError: The broker does not tell.
    """
    for version in (_API_VERSIONS_VERSION, 0):
        request = ApiVersionsRequest(
            client_software_name=CLIENT_ID,
            client_software_version=f"kafka-python-{__version__}",
            version=version,
        )
        answer = await ask(connection, request, ApiVersionsResponse, version=version)
        if answer.error_code != _UNSUPPORTED_VERSION:
            break
    if answer.error_code:
        detail = f"ApiVersions was refused with {code_name(answer.error_code)}."
        raise AnswerLostError(Loss.UNREADABLE, detail)
    return answer


@contextmanager
def killed_if_it_stands_still() -> Iterator[None]:
    """Let the system end this process where it stands still in the block for ``STANDSTILL_S``.

    A signal that came in the meantime is acted upon before a process that was stopped does anything
    else, so whatever is after the standstill never happens.
    """
    before = signal.setitimer(signal.ITIMER_REAL, STANDSTILL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)


_LONGEST_IDLE_S: Final = 540.0
"""Brokers close idle connections after ten minutes; a request must not meet that."""

_REAUTHENTICATION_MARGIN_S: Final = 30.0
"""A connection is not used so shortly before its SASL session ends. Source: KIP-368."""


class Purpose(Enum):
    """What a connection is for.

    READ is what alterations and the cluster's metadata need, QUERY what callers read.
    """

    READ = auto()
    QUERY = auto()
    QUORUM = auto()
    ALTER = auto()
    LISTEN = auto()


MAX_CONNECTIONS: Final[Mapping[Purpose, int]] = {
    Purpose.READ: 8,
    Purpose.QUERY: 8,
    Purpose.QUORUM: 8,
    Purpose.ALTER: 16,
    Purpose.LISTEN: 64,
}
"""How many there may be at once, so that neither what waits for a controller nor what callers read
holds up an alteration."""


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
