"""Requests at fixed times are as slow as those found them who had to wait for their turn."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from benchmarks.loading import load
from benchmarks.measures import BenchmarkError

JOB = {
    "requests": [f"GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n" for n in range(3)],
    "connections": 2,
    "rate": 500,
    "seconds": 0.1,
    "lead_s": 0.0,
}


class Server:
    """Answers each request once its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.status = b"200 OK"
        self.port = 0
        self.connections = 0
        self.answered = 0
        self.first_at = float("inf")

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            self.first_at = min(self.first_at, time.perf_counter())
            await self.gate.wait()
            self.answered += 1
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % self.status)
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


async def test_every_request_is_sent_and_its_latency_counts_from_when_it_was_due(server: Server):
    running = asyncio.create_task(load({**JOB, "port": server.port}))
    async with asyncio.timeout(30):
        while time.perf_counter() < server.first_at + 0.1:  # until each request is due
            await asyncio.sleep(0)
        server.gate.set()
        result = await running
    assert result.answers == 50
    assert server.connections == 2
    assert result.max_ms >= result.p99_ms >= result.p50_ms >= 50


async def test_an_answer_that_is_no_success_ends_the_load(server: Server):
    server.gate.set()
    server.status = b"500 Broken"
    with pytest.raises(BenchmarkError, match="500"):
        await asyncio.wait_for(load({**JOB, "port": server.port}), 30)


async def test_what_is_sent_before_the_window_is_not_counted(server: Server):
    server.gate.set()
    result = await asyncio.wait_for(load({**JOB, "port": server.port, "lead_s": 0.1}), 30)
    assert result.answers == 50
    assert server.answered == 100
