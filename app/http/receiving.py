"""One connection: its deadlines and bounds, for uvicorn itself waits for ever.

A connection that is being answered is never cut, for the answer may be that of an alteration.
"""

import asyncio
import re
import socket
import ssl
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.domain.errors import NotSentError, QuotaError, UnreadableRequestError
from app.http.errors import HeadersTooLargeError
from app.http.problems import raw_problem
from app.metrics import Metrics


class Stage(StrEnum):
    """What the service waits for; the label ``stage`` of ``receive_deadline_closed_total``."""

    IDLE = "idle"
    HEADERS = "headers"
    BODY = "body"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """How long the service waits for callers, in seconds, and how much they may hold.

    Attributes:
        idle_s: For the first byte of a request.
        headers_s: From that to the end of the headers.
        body_s: From that to the end of the body.
        answer_s: For reading some of an answer that waits to be sent.
        header_bytes: So many bytes of headers, or of what surrounds a body, are taken in.
    """

    idle_s: float = 10.0
    headers_s: float = 10.0
    body_s: float = 30.0
    answer_s: float = 60.0
    header_bytes: int = 64 * 1024


_CHECKS_PER_DEADLINE: Final = 5
"""How often each deadline is checked before it is over: a connection ends a fifth late at most."""

_LONGEST_CHECK_INTERVAL_S: Final = 0.5
_LINGER_S: Final = 1.0
"""How long the rest of a refused request is thrown away, so that the refusal can be read."""

_RECEIVE_BUFFER_BYTES: Final = 32 * 1024
"""What the system holds of a connection that nobody reads from; so much is read at once."""

_PROGRESS_BYTES: Final = 16 * 1024
"""Whoever reads so much of an answer within its deadline gets more time."""

_MAX_PIPELINED: Final = 64
_MALFORMED: Final = "malformed-http"
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
_HOST: Final = re.compile(rb"([A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
"""Source: RFC 9110 7.2, RFC 3986 3.2; without a comma, of which two hosts could be made."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class SlotGroup:
    """Connections of one kind: all, those of an address, the handshakes, the refused."""

    members: set["Slot"] = field(default_factory=set)
    idle: OrderedDict["Slot", None] = field(default_factory=OrderedDict)


@dataclass(eq=False, slots=True)
class Slot:
    """A connection, from when it is accepted.

    Attributes:
        groups: What it counts in: all, its address, and the handshakes as long as it is one; or
            the refused. None once it is closed.
        is_refused: Whether it is open only for the answer that it is one too many.
        close: Ends it.
    """

    groups: list[SlotGroup]
    is_refused: bool = False
    close: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        for group in self.groups:
            group.members.add(self)
        self.wait()

    def open(self, close: Callable[[], None]) -> None:
        """Note that requests can come now, and what ends the connection from now on."""
        self.close = close
        if not self.groups:  # a handshake that has just ended well, and was evicted before that
            close()
        self._leave(self.groups[2:])

    def wait(self) -> None:
        """Note that the connection waits for a request: it is the youngest of the idle ones."""
        self.work()
        for group in self.groups:
            group.idle[self] = None

    def work(self) -> None:
        """Note that a request is being answered: the connection is not evicted meanwhile."""
        for group in self.groups:
            group.idle.pop(self, None)

    def end(self) -> None:
        """Note that the connection is closed; a second time nothing happens."""
        self._leave(self.groups)

    def _leave(self, left: list[SlotGroup]) -> None:
        for group in left:
            group.members.discard(self)
            group.idle.pop(self, None)
        self.groups = [group for group in self.groups if self in group.members]


Buffer: TypeAlias = "bytes | bytearray | memoryview | array[int]"


class _HttpParser(HttpRequestParser):
    """Reads on behind a request that offers another protocol: none is taken."""

    def feed_data(self, data: Buffer) -> None:
        """Read bytes; the parser says where those behind an offer begin."""
        left = memoryview(data)
        while left:
            try:
                super().feed_data(left)
            except HttpParserUpgrade as offer:
                left = left[offer.args[0] :]
            else:
                return


class DeadlineHttpProtocol(HttpToolsProtocol):
    """One connection; ``of_uvicorn`` is what its own protocol takes."""

    def __init__(
        self, *of_uvicorn: Any, slot: Slot, metrics: Metrics, limits: ReceiveLimits
    ) -> None:
        super().__init__(*of_uvicorn)
        self.parser = _HttpParser(self)
        self._slot = slot
        self._metrics = metrics
        self._limits = limits
        shortest = min(limits.idle_s, limits.headers_s, limits.body_s, limits.answer_s)
        self._check_interval_s = min(_LONGEST_CHECK_INTERVAL_S, shortest / _CHECKS_PER_DEADLINE)
        self._stage: Stage | None = Stage.IDLE
        self._since = self.loop.time()
        self._unread_since: float | None = None
        self._unread_bytes = 0
        self._refused_at: float | None = None
        self._bare_bytes = 0
        self._body_came = False
        self._fault: QuotaError | None = None
        self._next_check: asyncio.TimerHandle | None = None
        self._tls: dict[object, object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait; one connection too many is refused."""
        self._slot.open(transport.abort)
        super().connection_made(transport)
        self._tls = _tls_extension(transport)
        self._metrics.connections.inc()
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        self._next_check = self.loop.call_later(self._check_interval_s, self._check_deadline)
        if self._slot.is_refused:
            detail = "There are too many connections; come back after Retry-After."
            self._refuse(NotSentError(detail, code="too-many-connections", retry_after_s=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking."""
        if self._next_check is not None:
            self._next_check.cancel()
        self._metrics.connections.dec()
        super().connection_lost(exc)
        self._slot.end()

    def data_received(self, data: bytes) -> None:
        """Take in bytes, unless they belong to a request that was refused."""
        if self._refused_at is not None:
            return
        self._body_came = False
        super().data_received(data)
        is_framing = self._stage is Stage.BODY and not self._body_came
        if self._stage is Stage.HEADERS or is_framing:
            self._bare_bytes += len(data)
        else:
            self._bare_bytes = 0
        if self._body_came and self._stage is Stage.BODY and self._answering:
            self.flow.pause_reading()  # until the application asks for more
        if self._bare_bytes > self._limits.header_bytes:
            most = self._limits.header_bytes
            detail = f"Over {most} bytes came without an end of headers; send fewer."
            self._refuse(HeadersTooLargeError(detail))

    def on_message_begin(self) -> None:
        """Wait for the rest of the headers."""
        super().on_message_begin()
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}
        self._wait_for(Stage.HEADERS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header; trailers of a chunked body are ignored. Source: RFC 9110 6.5.1."""
        if self._stage is Stage.HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Wait for the body.

        Raises:
            ValueError: HTTP forbids such a request, or too many were sent without waiting for an
                answer.
        """
        self._fault = head_fault(
            self.parser.get_http_version(),
            self.headers,
            offers_protocol=self.parser.should_upgrade(),
        )
        if self._fault is None:
            super().on_headers_complete()
            self._wait_for(Stage.BODY)
            self._slot.work()
            if len(self.pipeline) > _MAX_PIPELINED:
                detail = "Too many requests were sent without waiting for an answer; wait for each."
                self._fault = UnreadableRequestError(detail, code=_MALFORMED)
        if self._fault is not None:
            raise ValueError(self._fault.detail)

    def on_body(self, body: bytes) -> None:
        """Note that the body goes on."""
        self._body_came = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing: the request is here."""
        super().on_message_complete()
        self._stage = None
        if not self._answering:
            self._wait_for(Stage.IDLE)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for what is left of this one."""
        super().on_response_complete()
        if not self._answering:
            self._slot.wait()
        if self._stage is None:
            self._wait_for(Stage.IDLE)
        elif self._stage is Stage.HEADERS:
            self._wait_for(Stage.HEADERS)

    def resume_writing(self) -> None:
        """Go on: the caller has read."""
        super().resume_writing()
        self._unread_since = None

    def timeout_keep_alive_handler(self) -> None:
        """Leave idle connections to ``_check_deadline``."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser could not read, or ``on_headers_complete`` did not take."""
        self._refuse(self._fault or UnreadableRequestError(msg, code=_MALFORMED))

    @property
    def _answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.disconnected)

    def _wait_for(self, stage: Stage) -> None:
        self._stage = stage
        self._since = self.loop.time()

    def _check_deadline(self) -> None:
        """Close the connection if the caller is too late; look again soon."""
        self._next_check = self.loop.call_later(self._check_interval_s, self._check_deadline)
        now = self.loop.time()
        stage = self._overdue_stage(now)
        if stage is None:
            return
        if self._refused_at is None:
            self._metrics.closed.labels(stage.value).inc()
        self.transport.abort()

    def _overdue_stage(self, now: float) -> Stage | None:
        if self.transport.get_write_buffer_size() > 0:
            return Stage.ANSWER if self._unread_for(now) >= self._limits.answer_s else None
        if self._unread_since is not None:
            self._unread_since = None
            if self._stage is Stage.IDLE:
                self._since = now
        if self._answering or self._stage is None:
            return None
        if self._refused_at is not None:
            return self._stage if now - self._refused_at >= _LINGER_S else None
        deadline_s: float = getattr(self._limits, f"{self._stage}_s")
        return self._stage if now - self._since >= deadline_s else None

    def _unread_for(self, now: float) -> float:
        """Return for how long the caller has read next to nothing of its answer."""
        waiting = self.transport.get_write_buffer_size()
        if self._unread_since is None or waiting <= self._unread_bytes - _PROGRESS_BYTES:
            self._unread_since, self._unread_bytes = now, waiting
        self._unread_bytes = max(self._unread_bytes, waiting)
        return now - self._unread_since

    def _refuse(self, error: QuotaError) -> None:
        """Say why nothing more is read, where that cannot be taken for another request's answer."""
        self._refused_at = self.loop.time()
        self._metrics.rejected.labels(error.code).inc()
        if self._answering and not self._may_interrupt():
            self.cycle.keep_alive = False
            return
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(raw_problem(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _may_interrupt(self) -> bool:
        """Tell whether it is the request being answered that cannot be read to its end."""
        mine = self._stage is Stage.BODY and not self.pipeline
        return mine and not self.cycle.response_started


def _tls_extension(transport: asyncio.Transport) -> dict[object, object] | None:
    """Return what an application may know of TLS; null without it. Source: ASGI's TLS extension."""
    connection = transport.get_extra_info("ssl_object")
    if connection is None:
        return None
    certificate = connection.getpeercert(binary_form=True)
    chain = [] if certificate is None else [ssl.DER_cert_to_PEM_cert(certificate)]
    return {"client_cert_chain": chain}


def head_fault(
    version: str, headers: Sequence[tuple[bytes, bytes]], *, offers_protocol: bool
) -> QuotaError | None:
    """Return why HTTP forbids a request; null for one that it allows.

    A body beside ``Upgrade``, or of CONNECT, would be read as the next request: the parser takes it
    for another protocol.

    Source: RFC 9112 2.3 (versions), 3.2 (``Host``), 6.1 and 6.3 (``Transfer-Encoding``).
    """
    if version not in _VERSIONS:
        return UnreadableRequestError("Send HTTP/1.1 or HTTP/1.0.", code=_MALFORMED)
    hosts = [value for name, value in headers if name == b"host"]
    if (version == "1.1" and not hosts) or len(hosts) > 1:
        return UnreadableRequestError("Give exactly one Host header.", code=_MALFORMED)
    if hosts and not _HOST.fullmatch(hosts[0].strip()):
        return UnreadableRequestError(
            "The Host header names no host; name this service.", code=_MALFORMED
        )
    if offers_protocol and any(name in _BODY_HEADERS for name, _ in headers):
        detail = "Send no body with Upgrade: no other protocol is spoken here."
        return UnreadableRequestError(detail, code=_MALFORMED)
    codings = [
        coding.strip().lower()
        for name, value in headers
        if name == b"transfer-encoding"
        for coding in value.split(b",")
    ]
    if codings and (version == "1.0" or codings[-1] != b"chunked" or b"chunked" in codings[:-1]):
        detail = "Transfer-Encoding is of HTTP/1.1, and chunked stands in it once, at its end."
        return UnreadableRequestError(detail, code=_MALFORMED)
    if len(codings) > 1:
        detail = "Chunked is the only Transfer-Encoding read here."
        return QuotaError(detail, code="unsupported-transfer-coding")
    return None
