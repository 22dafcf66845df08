"""A server with short deadlines in a thread of its own, and callers with bare sockets."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from app.http.connections import Acceptor, ConnectionLimits, Connections
from app.http.receiving import DeadlineHttpProtocol, ReceiveLimits
from app.metrics import Metrics
from tests.testkit.patience import wait_until

DEADLINE_S = 30.0
LARGE_ANSWER = 16 * 1024 * 1024

LONG = ReceiveLimits(idle_s=60, headers_s=60, body_s=60, answer_s=60)
"""Deadlines that no test reaches; a test shortens the one that it is about."""

MANY = ConnectionLimits(of_an_address=1000)
Tls = ssl.SSLContext | None


class Echo:
    """Answers with the body, the number of headers, or much; ``/gate`` when the gate opens."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.reached = threading.Event()
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self.scopes.append(scope)
        path = scope["path"]
        body = b""
        if path == "/echo":
            with suppress(ClientDisconnect):
                body = await Request(scope, receive).body()
        elif path == "/large":
            body = b"x" * LARGE_ANSWER
        elif path == "/gate":
            self.reached.set()
            await asyncio.get_running_loop().run_in_executor(None, self.gate.wait, DEADLINE_S)
            body = b"gate"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class RawServer:
    """A server; ``metrics`` are its own."""

    port: int
    echo: Echo
    metrics: Metrics
    server: uvicorn.Server
    open_for: Connections
    callers: list["Caller"] = field(default_factory=list)

    async def connect(self, source: str = "127.0.0.1", **tls: Any) -> "Caller":
        """Open a connection from an address of this machine."""
        streams = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0), **tls
        )
        caller = Caller(*streams)
        self.callers.append(caller)
        return caller

    async def hang_up(self) -> None:
        """Close what callers have left open."""
        for caller in self.callers:
            caller.close()
        await eventually(lambda: self.connections() == 0)

    def closed(self, stage: str) -> float:
        """Return how many connections were closed in a stage."""
        return self._sample("receive_deadline_closed_total", stage=stage)

    def rejected(self, code: str) -> float:
        """Return how many requests were refused with a code."""
        return self._sample("request_rejected_total", reason=code)

    def dropped(self, reason: str) -> float:
        """Return how many connections were closed for a reason."""
        return self._sample("http_server_connections_dropped_total", reason=reason)

    def connections(self) -> float:
        """Return how many connections there are."""
        return self._sample("http_server_open_connections")

    def _sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def protocol(self) -> DeadlineHttpProtocol:
        """Return the server's side of the only connection."""
        (protocol,) = self.server.server_state.connections
        assert isinstance(protocol, DeadlineHttpProtocol)
        return protocol


@dataclass
class Caller:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        """Read one answer with a Content-Length; return its status and body."""
        async with asyncio.timeout(DEADLINE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            (length,) = [line for line in lines if line.startswith("content-length:")]
            body = await self.reader.readexactly(int(length.partition(":")[2]))
        return int(lines[0].split()[1]), body

    async def rest(self) -> bytes:
        """Read until the server closes the connection; a reset is an end too."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.01)


class _Server(uvicorn.Server):
    """Accepts as the service does."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        open_for: Connections,
        make: Callable[..., DeadlineHttpProtocol],
        tls: Tls,
    ) -> None:
        super().__init__(config)
        self._listening, self._open_for, self._make, self._tls = listening, open_for, make, tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        make = partial(self._make, self.config, self.server_state, self.lifespan.state)
        acceptor = Acceptor(self._listening, self._open_for, make, self._tls, 2048)
        self.servers.append(cast("asyncio.Server", acceptor))


@contextmanager
def raw_server(
    limits: ReceiveLimits, most: ConnectionLimits = MANY, tls: Tls = None
) -> Iterator[RawServer]:
    """Serve until the block ends."""
    echo, metrics = Echo(), Metrics()
    config = uvicorn.Config(
        echo,
        ws="none",
        loop="uvloop",
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    open_for = Connections(most, metrics.count_dropped)
    make = partial(DeadlineHttpProtocol, metrics=metrics, limits=limits)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _Server(config, listener, open_for, make, tls)
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield RawServer(port, echo, metrics, server, open_for)
        finally:
            echo.gate.set()
            server.should_exit = True
            thread.join(DEADLINE_S)
    assert not thread.is_alive()
