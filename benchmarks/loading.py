"""The load generator: a process that keeps connections busy, or sends at fixed times.

It reads one job a line (``Generator.run`` writes it) and answers with the figures of a ``Load``.
With a rate requests are sent at times that are fixed beforehand, whatever becomes of those before:
an open loop. A latency counts from the time at which a request was due, so one that had to wait for
its turn is as slow as its caller would have found it ("coordinated omission" is avoided). Those of
the first ``lead_s`` are not counted: who asks first after a while waits for an image, whatever
comes then.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, NamedTuple

import uvloop

from benchmarks.competitors.peers import Worker, worker
from benchmarks.http_connection import OK, HttpConnection, open_http, prepared
from benchmarks.measures import BenchmarkError, percentile

PACED_LEAD_S: Final = 2.0


class Load(NamedTuple):
    """The figures of a window of load."""

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    @property
    def requests_per_s(self) -> float:
        """How many were answered in a second."""
        return self.answers / self.seconds


async def load(job: dict[str, Any]) -> Load:
    """Do a job.

    Raises:
        BenchmarkError: An answer was not a success.
    """
    connections = [await open_http(job["port"]) for _ in range(job["connections"])]
    requests = cycle([request.encode() for request in job["requests"]])
    begun = time.perf_counter() + job["lead_s"]
    try:
        if job["rate"]:
            taken = await _at_fixed_times(connections, requests, begun, job)
        else:
            busy = (_keep_busy(item, requests, begun + job["seconds"]) for item in connections)
            taken = [took for each in await asyncio.gather(*busy) for took in each]
    finally:
        for connection in connections:
            connection.close()
    took, ordered = time.perf_counter() - begun, sorted(taken)
    percentiles = (percentile(ordered, share) * 1000 for share in (0.5, 0.99, 0.999, 1.0))
    return Load(len(ordered), took, *percentiles)


async def _keep_busy(
    connection: HttpConnection, requests: Iterator[bytes], end: float
) -> list[float]:
    taken = []
    now = time.perf_counter()
    while now < end:
        await _exchange(connection, next(requests))
        before, now = now, time.perf_counter()
        taken.append(now - before)
    return taken


async def _exchange(connection: HttpConnection, request: bytes) -> None:
    answer = await connection.exchange(request)
    if answer.status != OK:
        raise BenchmarkError(f"answered {answer.status} under load")


async def _at_fixed_times(
    connections: Sequence[HttpConnection],
    requests: Iterator[bytes],
    begun: float,
    job: dict[str, Any],
) -> list[float]:
    """Send requests when they are due, or in their order when a connection is idle."""
    rate, ahead, taken = job["rate"], int(job["rate"] * job["lead_s"]), list[float]()
    queue: asyncio.Queue[float | None] = asyncio.Queue()

    async def send(connection: HttpConnection) -> None:
        while (due := await queue.get()) is not None:
            await _exchange(connection, next(requests))
            if due >= begun:
                taken.append(time.perf_counter() - due)

    senders = [asyncio.create_task(send(connection)) for connection in connections]
    for at in range(-ahead, int(rate * job["seconds"])):
        due = begun + at / rate
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        queue.put_nowait(due)
    for _ in senders:
        queue.put_nowait(None)
    await asyncio.gather(*senders)
    return taken


@dataclass(frozen=True)
class Target:
    """One route of one server.

    Attributes:
        others: Paths that are asked in turns with the first, over all connections.
    """

    port: int
    path: str
    token: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generator:
    """This program in a process of its own; ``load_generator`` starts it."""

    process: Worker

    async def run(
        self, target: Target, connections: int, seconds: float, rate: float | None = None
    ) -> Load:
        """Load a route, each connection asking again when it is answered.

        With a rate so many requests a second are sent, and the same for ``PACED_LEAD_S`` before.
        """
        paths = (target.path, *target.others)
        requests = [prepared("GET", path, token=target.token).decode() for path in paths]
        job = {"port": target.port, "requests": requests, "connections": connections}
        job |= {"seconds": seconds, "rate": rate, "lead_s": PACED_LEAD_S if rate else 0.0}
        line = await self.process.ask(json.dumps(job))
        if not line:
            raise BenchmarkError("the load generator ended; see its error above")
        return Load(*json.loads(line))


@contextmanager
def load_generator() -> Iterator[Generator]:
    """Start it; end it with the block."""
    command = [sys.executable, "-m", "benchmarks.loading"]
    with worker("the load generator", command, os.environ) as process:
        yield Generator(process)


def main() -> None:
    """Do the jobs of standard input until it ends."""
    for line in sys.stdin:
        print(json.dumps(uvloop.run(load(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
