"""One connection to one broker: a request is handed over, its answer comes back, one at a time.

Brokers handle the requests of a connection one after the other, so a second request would only
wait behind the first. Where a request got to is exact: ``hand_over`` raises before a byte of it
reached the socket, and afterwards a failure is an ``AnswerLostError``.
"""

import asyncio
import select
from enum import Enum, auto
from typing import Final, cast

from app.domain.errors import NotSentError
from app.kafka.apis import api_name
from app.service.dependency_metrics import DependencyMetrics, KafkaResult

LARGEST_ANSWER_BYTES: Final = 500_000_000
"""The largest describe-all that is read: about five million entities."""

UNREACHABLE: Final = "cluster-unreachable"
"""The code of every ``NotSentError`` that is about the brokers."""

_LENGTH_BYTES: Final = 4
_CORRELATION_BYTES: Final = 4
_LARGEST_CORRELATION_ID: Final = 2**31 - 1


class Loss(Enum):
    """Why the answer to a request that was handed over will not come."""

    CLOSED = auto()
    TOO_LARGE = auto()
    UNREADABLE = auto()


class AnswerLostError(Exception):
    """The request was handed over, and its answer will not come on this connection."""

    def __init__(self, loss: Loss, detail: str) -> None:
        super().__init__(detail)
        self.loss = loss
        self.detail = detail


class BrokerConnection(asyncio.Protocol):
    """A connection, from the first byte on; ``app.kafka.handshake`` makes it ready for use."""

    def __init__(self, metrics: DependencyMetrics) -> None:
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.metadata_version: int | None = None
        self.expires_at: float | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
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
        return transport is not None and not transport.is_closing() and self._answer is None

    @property
    def quiet(self) -> bool:
        """Whether the connection is idle and the broker has said nothing since its last answer.

        What it says then is that it has closed, which the event loop may not have seen yet.
        """
        if self._transport is None or not self.idle:
            return False
        unread = select.poll()
        unread.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not unread.poll(0)

    def next_correlation_id(self) -> int:
        """Return the id that the next request must carry."""
        self._correlation_id = self._correlation_id % _LARGEST_CORRELATION_ID + 1
        return self._correlation_id

    def hand_over(self, frame: bytes, largest_answer: int) -> asyncio.Future[bytearray]:
        """Hand a whole request, its length first, to the socket; return its answer to come.

        The answer starts at its correlation id. It fails with ``AnswerLostError``, and the
        connection is of no more use then.

        Raises:
            NotSentError: The connection is closed; the broker cannot have the request.
        """
        if self._transport is None or not self.idle:
            raise closed_before()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytearray] = loop.create_future()
        self._answer, self._limit = answer, largest_answer
        self._asked, self._asked_at = api_name(frame), loop.time()
        self._transport.write(frame)
        if self._transport.is_closing():
            # The socket refused the very first write, so no whole request can have left.
            self._answer = None
            raise closed_before()
        return answer

    def note_error(self, name: str) -> None:
        """Count an error in the last answer, by Kafka's name."""
        self._metrics.kafka_error_came(self._asked, name)

    def abort(self) -> None:
        """Drop the connection, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits. Called by the event loop."""
        self._lose(Loss.CLOSED, f"The connection was closed ({exc})." if exc else "It was closed.")
        self._transport = None
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


def closed_before() -> NotSentError:
    """Return the error for a request that met a closed connection."""
    return NotSentError("The broker has closed the connection.", code=UNREACHABLE)
