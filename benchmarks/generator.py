"""The load generator of this project: a process of its own that reads one job a line.

A job is ``{"port", "request", "connections", "seconds"}``, its result
``{"answers", "seconds", "p50_ms", "p99_ms"}``. With ``rate`` it is one for ``open_loop_load``.
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import OK, HttpConnection, open_http
from benchmarks.measures import percentile
from benchmarks.open_loop import open_loop_load


async def load(job: dict[str, Any]) -> dict[str, float]:
    """Keep each connection busy for so many seconds.

    Raises:
        BenchmarkError: An answer was not a success.
    """
    connections = [await open_http(job["port"]) for _ in range(job["connections"])]
    request = job["request"].encode()
    begun = time.perf_counter()
    end = begun + job["seconds"]
    try:
        taken = await asyncio.gather(*(_busy(item, request, end) for item in connections))
    finally:
        for connection in connections:
            connection.close()
    seconds = time.perf_counter() - begun
    ordered = sorted(figure for figures in taken for figure in figures)
    return {
        "answers": len(ordered),
        "seconds": seconds,
        "p50_ms": percentile(ordered, 0.5) * 1000,
        "p99_ms": percentile(ordered, 0.99) * 1000,
    }


async def _busy(connection: HttpConnection, request: bytes, end: float) -> list[float]:
    taken = []
    now = time.perf_counter()
    while now < end:
        answer = await connection.exchange(request)
        if answer.status != OK:
            raise BenchmarkError(f"answered {answer.status} under load")
        before, now = now, time.perf_counter()
        taken.append(now - before)
    return taken


def main() -> None:
    """Do the jobs of standard input until it ends."""
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(uvloop.run((open_loop_load if "rate" in job else load)(job))), flush=True)


if __name__ == "__main__":
    main()
