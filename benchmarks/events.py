"""``python -m benchmarks.events``: what events cost an alteration.

The service runs by turns without a topic of events and with one; it is measured alone and with 16
callers. Prints a table.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import count
from statistics import median
from typing import Final, NamedTuple

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measures import BenchmarkError, grid
from benchmarks.stack import Progress, Stack, running_stack

_TOPIC: Final = "quota-events"
_CALLERS: Final = 16
_NUMBERS: Final = count(1)
_COLUMNS: Final = ("", "one caller, median ms", f"{_CALLERS} callers, alterations a second")


class Cost(NamedTuple):
    """Milliseconds of each alteration of one caller; alterations a second of many."""

    alone_ms: list[float]
    rates: list[float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--alterations", type=int, default=200, help="of each caller in each turn")
    options = parser.parse_args(arguments)
    progress = Progress()
    with running_stack(progress) as stack:
        _create_topic(stack.bootstrap_servers)
        costs = {"without events": Cost([], []), "with a topic of events": Cost([], [])}
        environs = (stack.environ, {**stack.environ, "QUOTAS_EVENTS_TOPIC": _TOPIC})
        for turn in range(options.turns):
            for (name, cost), environ in zip(costs.items(), environs, strict=True):
                progress.say(f"turn {turn + 1}: {name}")
                stack.service.stop()
                stack.service.start(environ)
                asyncio.run(_measure(stack, cost, options.alterations))
    print(_table(costs))
    return 0


def _create_topic(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(_TOPIC, 6, 1)])[_TOPIC].result()


async def _measure(stack: Stack, cost: Cost, number: int) -> None:
    headers = {"Authorization": f"Bearer {stack.token}"}
    limits = httpx.Limits(max_connections=_CALLERS)
    async with httpx.AsyncClient(
        base_url=stack.service.url, headers=headers, timeout=30, limits=limits
    ) as http:
        await _alter(http, number // 4)
        cost.alone_ms.extend(await _alter(http, number))
        began = time.perf_counter()
        await asyncio.gather(*(_alter(http, number) for _ in range(_CALLERS)))
        cost.rates.append(_CALLERS * number / (time.perf_counter() - began))


async def _alter(http: httpx.AsyncClient, number: int) -> list[float]:
    """Alter an entity so often; return the milliseconds of each alteration."""
    entity, took = {"user": f"caller-{next(_NUMBERS)}"}, []
    for value in range(1, number + 1):
        op = {"key": "producer_byte_rate", "value": value}
        body = {"alterations": [{"entity": entity, "ops": [op]}], "wait": "none"}
        began = time.perf_counter()
        answer = await http.post("/quotas/alterations", json=body)
        took.append((time.perf_counter() - began) * 1000)
        if answer.status_code != httpx.codes.OK:
            raise BenchmarkError(answer.text)
    return took


def _table(costs: dict[str, Cost]) -> str:
    rows = [
        [name, f"{median(cost.alone_ms):.1f}", f"{median(cost.rates):,.0f}"]
        for name, cost in costs.items()
    ]
    without, having = costs.values()
    ms = median(having.alone_ms) / median(without.alone_ms)
    rate = median(having.rates) / median(without.rates)
    return grid(_COLUMNS, [*rows, ["with / without", f"{ms:.2f}", f"{rate:.2f}"]])


if __name__ == "__main__":
    sys.exit(main())
