"""Requests at times that are fixed beforehand, whatever becomes of those before: an open loop.

A latency counts from the time at which the request was due, so one that had to wait for its turn
is as slow as its caller would have found it ("coordinated omission" is avoided).
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import OK, HttpConnection, open_http
from benchmarks.measures import percentile


class _Connections:
    """Idle connections; with all of them busy the requests wait in their order."""

    def __init__(self, connections: Sequence[HttpConnection], request: bytes) -> None:
        self.latencies: list[float] = []
        self.counted_from = 0.0
        self._idle = list(connections)
        self._request = request
        self._waiting: deque[float] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def send(self, due: float) -> None:
        """Send a request that was due then, now or when a connection is idle."""
        if not self._idle:
            self._waiting.append(due)
            return
        running = asyncio.create_task(self._exchange(self._idle.pop(), due))
        self._running.add(running)

    async def end(self) -> None:
        """Wait for all answers.

        Raises:
            BenchmarkError: One was not a success.
        """
        results = await asyncio.gather(*self._running, return_exceptions=True)
        for error in filter(None, results):
            raise error

    async def _exchange(self, connection: HttpConnection, due: float) -> None:
        while True:
            answer = await connection.exchange(self._request)
            if answer.status != OK:
                raise BenchmarkError(f"answered {answer.status} under load")
            if due >= self.counted_from:
                self.latencies.append(time.perf_counter() - due)
            if not self._waiting:
                break
            due = self._waiting.popleft()
        self._idle.append(connection)
        current = asyncio.current_task()
        if current is not None:
            self._running.discard(current)


async def open_loop_load(job: dict[str, Any]) -> dict[str, float]:
    """Send ``rate`` requests a second for so many seconds.

    Before that they are sent for ``lead_s``, and these are not counted: who asks first after a
    while waits for an image, whatever comes then.

    Raises:
        BenchmarkError: An answer was not a success.
    """
    opened = [await open_http(job["port"]) for _ in range(job["connections"])]
    connections = _Connections(opened, job["request"].encode())
    rate, ahead = job["rate"], int(job["rate"] * job["lead_s"])
    begun = connections.counted_from = time.perf_counter() + job["lead_s"]
    try:
        for at in range(-ahead, int(rate * job["seconds"])):
            due = begun + at / rate
            left = due - time.perf_counter()
            if left > 0:
                await asyncio.sleep(left)
            connections.send(due)
        await connections.end()
    finally:
        for item in opened:
            item.close()
    ordered = sorted(connections.latencies)
    return {
        "answers": len(ordered),
        "seconds": time.perf_counter() - begun,
        "p50_ms": percentile(ordered, 0.5) * 1000,
        "p99_ms": percentile(ordered, 0.99) * 1000,
        "p999_ms": percentile(ordered, 0.999) * 1000,
        "max_ms": ordered[-1] * 1000,
    }
