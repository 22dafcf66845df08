"""Resolving from the image: one identity against no-op routes, and 10,000 in one request."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import HttpConnection, open_http, prepared
from benchmarks.loading import Generator, Load, Target, load_generator
from benchmarks.measures import Measure
from benchmarks.plan import Plan
from benchmarks.rounds import Arm, interleaved
from benchmarks.stack import Stack
from benchmarks.tables import Goal, Section, Table, show
from benchmarks.workload import Entities

_CONNECTIONS = (1, 32)
_LIMIT = 0.5
"""Of the no-op with the same authentication, at the most connections."""
_OURS = "`GET /quotas/resolve`"
_FLOOR = "no-op, authenticated"
_IDENTITIES = 10_000
_MANY_LIMIT_MS = 100.0
_MANY = f"`POST /quotas/resolve`, {_IDENTITIES:,} identities"
_COLUMNS = (
    "connections",
    "route",
    "n",
    "min req/s",
    "p50 req/s",
    "max req/s",
    "latency p50 ms",
    "latency p99 ms",
    "x no-op, authenticated",
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
        cells = [show(item) for item in (rate.minimum, rate.median, rate.maximum)]
        cells += [
            show(Measure([load.p50_ms for load in self.loads]).median),
            show(Measure([load.p99_ms for load in self.loads]).median),
            show(ratio),
        ]
        return [str(connections), route, str(rate.n), *cells]


async def measure_resolves(stack: Stack, plan: Plan, stored: Entities) -> Section:
    """Measure both routes in turns, with one connection and with many; then many identities."""
    section = await asyncio.to_thread(_measure, stack, plan, stored)
    many = await _measure_many(stack, plan, stored)
    rates = [1000 / ms for ms in (many.maximum, many.median, many.minimum)]
    row = ["1", _MANY, str(many.n), *map(show, (*rates, many.median, many.p99)), ""]
    table = replace(section.table, rows=[*section.table.rows, row])
    goal = Goal(f"{_MANY}, at the median: ms", _MANY_LIMIT_MS, many.median)
    return Section(table, [*section.goals, goal])


class _Many(Arm):
    """One request with many identities, half of them stored, and its whole answer."""

    def __init__(self, connection: HttpConnection, stack: Stack, stored: Entities) -> None:
        super().__init__(_MANY)
        identities = [
            stored.names(at // 2 % stored.count) if at % 2 else {"user": f"u{at}"}
            for at in range(_IDENTITIES)
        ]
        body = json.dumps({"identities": identities}).encode()
        self._connection = connection
        self._request = prepared("POST", "/quotas/resolve", token=stack.token, body=body)
        self._answer = b""

    async def prepare(self) -> None:
        await self._connection.warm_up()

    async def call(self) -> None:
        self._answer = (await self._connection.exchange(self._request)).body

    async def settle(self) -> None:
        if len(json.loads(self._answer).get("results", ())) != _IDENTITIES:
            raise BenchmarkError(f"not everything is resolved: {self._answer[:200]!r}")


async def _measure_many(stack: Stack, plan: Plan, stored: Entities) -> Measure:
    connection = await open_http(stack.service_port)
    try:
        arms = [_Many(connection, stack, stored)]
        figures = await interleaved(arms, rounds=plan.batch_alters, warm_up=plan.warm_up)
    finally:
        connection.close()
    return figures[_MANY]


def _measure(stack: Stack, plan: Plan, stored: Entities) -> Section:
    query = urlencode(stored.names(stored.count // 2))
    targets = {
        _OURS: Target(stack.service_port, f"/quotas/resolve?{query}", stack.token),
        "no-op": Target(stack.noop_port, "/noop"),
        _FLOOR: Target(stack.noop_port, "/noop/authenticated", stack.token),
    }
    rows, goals = [], []
    with load_generator() as generator:
        name = generator.name
        for connections in _CONNECTIONS:
            windows = _in_turns(generator, plan, targets, connections)
            for route, measured in windows.items():
                ratio = measured.rate.ratio_to(windows[_FLOOR].rate)
                rows.append(measured.row(connections, route, ratio))
                if route == _OURS and connections == max(_CONNECTIONS):
                    text = f"{_OURS} / {_FLOOR}, {connections} connections"
                    goals.append(Goal(text, _LIMIT, ratio, at_most=False))
    note = (
        f"`{query}` among {stored.count:,} stored entities, default `max_age_ms`, with "
        "authentication, authorization, access log and metrics; the no-ops are FastAPI routes on "
        "the same server settings, one without any of it, one that checks the same token. n "
        f"windows of {plan.window_s:g} s, in turns; latencies are medians over the windows. "
        f"Load generator: {name}. Of the "
        f"{_IDENTITIES:,} identities of the last row half are stored; it is timed one by one."
    )
    return Section(Table("Resolve from the image", note, _COLUMNS, rows), goals)


def _in_turns(
    generator: Generator, plan: Plan, targets: Mapping[str, Target], connections: int
) -> dict[str, _Windows]:
    loads: dict[str, list[Load]] = {route: [] for route in targets}
    for window in range(-1, plan.windows):
        for route in list(targets)[:: 1 if window % 2 else -1]:
            load = generator.run(targets[route], connections, plan.window_s)
            if window >= 0:
                loads[route].append(load)
    return {route: _Windows(windows) for route, windows in loads.items()}
