"""``GET /quotas/resolve`` from the image against the no-op route, in requests per second."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urlencode

from benchmarks.loading import Generator, Load, Target, load_generator
from benchmarks.measures import Measure
from benchmarks.plan import Plan
from benchmarks.stack import Stack
from benchmarks.tables import Goal, Part, Table, shown
from benchmarks.workload import Entities

_CONNECTIONS = (1, 32)
_LIMIT = 0.5
_COLUMNS = (
    "connections",
    "route",
    "n",
    "min req/s",
    "p50 req/s",
    "max req/s",
    "latency p50 ms",
    "latency p99 ms",
    "x no-op",
)


@dataclass(frozen=True)
class _Windows:
    """The windows of one route."""

    loads: list[Load]

    @property
    def rate(self) -> Measure:
        return Measure([load.requests_per_s for load in self.loads])

    def row(self, connections: int, route: str, ratio: float) -> list[str]:
        rate = self.rate
        cells = [shown(one) for one in (rate.minimum, rate.median, rate.maximum)]
        cells += [
            shown(Measure([load.p50_ms for load in self.loads]).median),
            shown(Measure([load.p99_ms for load in self.loads]).median),
            shown(ratio),
        ]
        return [str(connections), route, str(rate.n), *cells]


async def measure_resolves(stack: Stack, plan: Plan, stored: Entities) -> Part:
    """Measure both routes in turns, with one connection and with many."""
    return await asyncio.to_thread(_measure, stack, plan, stored)


def _measure(stack: Stack, plan: Plan, stored: Entities) -> Part:
    query = urlencode(stored.names(stored.count // 2))
    resolve = Target(stack.service_port, f"/quotas/resolve?{query}", stack.token)
    noop = Target(stack.noop_port, "/noop")
    rows, goals = [], []
    with load_generator() as generator:
        name = generator.name
        for connections in _CONNECTIONS:
            ours, theirs = _in_turns(generator, plan, (resolve, noop), connections)
            ratio = ours.rate.ratio_to(theirs.rate)
            rows.append(ours.row(connections, "`GET /quotas/resolve`", ratio))
            rows.append(theirs.row(connections, "no-op", 1.0))
            word = "connection" if connections == 1 else "connections"
            text = f"`GET /quotas/resolve` / no-op, {connections} {word}"
            goals.append(Goal(text, _LIMIT, ratio, at_most=False))
    note = (
        f"`{query}` among {stored.count:,} stored entities, default `max_age_ms`, with "
        "authentication, authorization, access log and metrics; the no-op is a FastAPI route "
        f"without any of it on the same server settings. n windows of {plan.window_s:g} s, in "
        f"turns; latencies are medians over the windows. Load generator: {name}."
    )
    return Part(Table("Resolve from the image", note, _COLUMNS, rows), goals)


def _in_turns(
    generator: Generator, plan: Plan, targets: tuple[Target, Target], connections: int
) -> tuple[_Windows, _Windows]:
    loads: tuple[list[Load], list[Load]] = ([], [])
    for window in range(-1, plan.windows):
        for side in (0, 1) if window % 2 else (1, 0):
            load = generator.run(targets[side], connections, plan.window_s)
            if window >= 0:
                loads[side].append(load)
    return _Windows(loads[0]), _Windows(loads[1])
