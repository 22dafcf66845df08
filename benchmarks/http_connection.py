"""A client that costs little: one keep-alive connection, one prepared request after the other."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple, cast

import httptools

from benchmarks.measures import BenchmarkError

OK = 200


class Answer(NamedTuple):
    """Status and body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the document of an answer that must be a success.

        Raises:
            BenchmarkError: It is none.
        """
        if self.status != OK:
            raise BenchmarkError(f"answered {self.status}: {self.body.decode(errors='replace')}")
        return json.loads(self.body)


def prepared(method: str, path: str, *, token: str | None = None, body: bytes = b"") -> bytes:
    """Return a whole request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


class HttpConnection(asyncio.Protocol):
    """One request at a time; ``open_http`` makes it.

    Attributes:
        first_byte_at: When the newest answer began, in the time of ``time.perf_counter``; 0 until
            it has.
    """

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self.first_byte_at = 0.0

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and return its answer.

        Raises:
            BenchmarkError: The connection was closed.
        """
        if self._transport is None:
            raise BenchmarkError("the server has closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self.first_byte_at = 0.0
        self._transport.write(request)
        return await self._answer

    async def warm_up(self) -> None:
        """Have a request answered; the service closes a connection that was idle for 10 s."""
        if self._transport is None:
            await self.open()
        await self.exchange(prepared("GET", "/livez"))

    async def open(self) -> None:
        """Connect, for the first time or again."""
        self._parser = httptools.HttpResponseParser(self)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self._port)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits. Called by the event loop."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BenchmarkError(f"the connection was closed ({exc})"))

    def data_received(self, data: bytes) -> None:
        """Parse. Called by the event loop."""
        self.first_byte_at = self.first_byte_at or time.perf_counter()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Collect a chunk of the body. Called by the parser."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Hand the answer over. Called by the parser."""
        answer, self._answer = self._answer, None
        body = b"".join(self._body)
        self._body.clear()
        if answer is not None and not answer.done():
            answer.set_result(Answer(self._parser.get_status_code(), body))


async def open_http(port: int) -> HttpConnection:
    """Open a connection to a server of this machine."""
    connection = HttpConnection(port)
    await connection.open()
    return connection


def raise_unless_applied(answer: Answer) -> None:
    """Make sure that everything was applied.

    Raises:
        BenchmarkError: It was not.
    """
    document = answer.json()
    if document["outcome"] != "applied":
        raise BenchmarkError(f"an alteration was not applied: {document}")


def was_not_sent(answer: Answer) -> bool:
    """Tell whether nothing was sent, so that the request may be repeated as it is."""
    return answer.status == 503 and bool(json.loads(answer.body)["retry"] == "safe")


async def metrics(service_port: int) -> Mapping[str, float]:
    """Ask the service, over a new connection: it closes one that was idle for 10 s.

    Raises:
        BenchmarkError: It does not tell.
    """
    with closing(await open_http(service_port)) as service:
        answer = await service.exchange(prepared("GET", "/metrics"))
    if answer.status != OK:
        raise BenchmarkError(f"/metrics answered {answer.status}")
    return read_metrics(answer.body.decode())


def read_metrics(text: str) -> Mapping[str, float]:
    """Return the values of Prometheus' text format by name and labels, as they are written."""
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}
