"""An alteration end to end, from request to answer, against the bare wire call."""

import asyncio
import gc
import itertools
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.http_connection import (
    HttpConnection,
    metrics,
    open_http,
    prepared,
    raise_unless_applied,
    was_not_sent,
)
from benchmarks.measures import Goal, Measure, Section, percentile, show
from benchmarks.run import Plan, Run
from benchmarks.wire import Entities, WireQuotas

_VALUES: Final = itertools.count(10_000_000)

_ENTITIES: Final = 8
"""How many a client alters in turns, so that a change shows before the next one of its entity."""

_MOST_REPEATS: Final = 5


class Client(ABC):
    """One connection and entities that no other client alters, one after the other.

    Attributes:
        altered: The values that were set last.
        repeats: How often something was not sent and was repeated.
    """

    def __init__(self, name: str) -> None:
        self._turns = itertools.cycle([Entities(f"{name}-{turn}") for turn in range(_ENTITIES)])
        self.altered: dict[Entities, int] = {}
        self.repeats = 0

    async def alter(self) -> float:
        """Set new values of the next entity; return the milliseconds that it took."""
        entity, value = next(self._turns), next(_VALUES)
        took_ms = await self._timed(entity, value)
        self.altered[entity] = value
        return took_ms

    async def warm_up(self) -> None:
        """See that the connection is there; a broker keeps connections for minutes."""
        return

    @abstractmethod
    async def _timed(self, entity: Entities, value: int) -> float:
        """Alter; what only a client has to do is not timed."""

    @abstractmethod
    def close(self) -> None:
        """Drop the connection."""


class _BareClient(Client):
    """AlterClientQuotas over a connection of its own."""

    def __init__(self, name: str, wire: WireQuotas) -> None:
        super().__init__(name)
        self._wire = wire

    async def _timed(self, entity: Entities, value: int) -> float:
        alterations = entity.alterations(value)
        begun = time.perf_counter()
        await self._wire.alter(alterations)
        return (time.perf_counter() - begun) * 1000

    def close(self) -> None:
        self._wire.close()


class PostClient(Client):
    """``POST /quotas/alterations`` with ``wait: none`` over a connection of its own.

    What was not sent, as when the machine is too busy for the database to answer in time, is
    repeated, and all of it counts as the time of the alteration.
    """

    def __init__(self, name: str, service: HttpConnection, token: str) -> None:
        super().__init__(name)
        self._service = service
        self._token = token

    async def warm_up(self) -> None:
        """Open the connection again where others were busy for long."""
        await self._service.warm_up()

    async def _timed(self, entity: Entities, value: int) -> float:
        body = entity.body(value, wait="none")
        request = prepared("POST", "/quotas/alterations", token=self._token, body=body)
        begun = time.perf_counter()
        answer = await self._service.exchange(request)
        for _ in range(_MOST_REPEATS):
            if not was_not_sent(answer):
                break
            self.repeats += 1
            answer = await self._service.exchange(request)
        raise_unless_applied(answer)
        return (time.perf_counter() - begun) * 1000

    def close(self) -> None:
        """Drop the connection."""
        self._service.close()


@dataclass(frozen=True)
class Window:
    """What clients did in a while: how long each alteration took, and all of it."""

    took_ms: Sequence[float]
    seconds: float


async def busy(clients: Sequence[Client], seconds: float) -> Window:
    """Let clients alter for so long; what was begun is finished and counts."""
    await asyncio.gather(*(client.warm_up() for client in clients))
    gc.disable()
    try:
        begun = time.perf_counter()
        taken = await asyncio.gather(*(_alter_until(client, begun + seconds) for client in clients))
        return Window(list(itertools.chain(*taken)), time.perf_counter() - begun)
    finally:
        gc.enable()


async def _alter_until(client: Client, end: float) -> list[float]:
    taken = []
    while time.perf_counter() < end:
        taken.append(await client.alter())
    return taken


_CLIENTS = (1, 8, 32, 128)
_TIMES_BARE = {32: 20.0, 128: 60.0}
_CROWD = 100
_WINDOWS_OF_A_CROWD = 4
_LIMIT_MS = 5.0
_COLUMNS = (
    "clients",
    "arm",
    "n",
    "alterations",
    "p50 /s",
    "latency p50 ms",
    "latency p99 ms",
    "ms over bare",
    "x bare /s",
)
_PHASES = {
    "authz": "authorization",
    "slot_wait": "wait for the entity",
    "tx1": "intent",
    "group_wait": "wait for the group",
    "barrier": "barrier",
    "kafka": "Kafka",
    "tx2": "outcome",
}


@dataclass
class _Windows:
    """The windows of one arm."""

    arm: str
    clients: list[Client] = field(default_factory=list)
    done: list[Window] = field(default_factory=list)

    @property
    def rate(self) -> Measure:
        return Measure([len(item.took_ms) / item.seconds for item in self.done])

    @property
    def latency(self) -> Measure:
        return Measure([statistics.median(item.took_ms) for item in self.done])

    def row(self, bare: "_Windows") -> list[str]:
        ordered = sorted(took_ms for item in self.done for took_ms in item.took_ms)
        figures = (
            self.rate.median,
            self.latency.median,
            percentile(ordered, 0.99),
            self.latency.excess_over(bare.latency),
            self.rate.ratio_to(bare.rate),
        )
        counts = (str(self.rate.n), f"{len(ordered):,}")
        return [str(len(self.clients)), self.arm, *counts, *map(show, figures)]


async def measure_end_to_end(run: Run) -> list[Section]:
    """Measure alterations of one entity by several numbers of clients."""
    run.progress.say(f"end to end: {run.plan.end_to_end_windows} windows of each kind")
    before = await metrics(run.stack.service_port)
    found = {_CLIENTS[0]: await _measure(run, _CLIENTS[0])}
    phases_ms = means_ms(before, await metrics(run.stack.service_port))
    found |= {number: await _measure(run, number) for number in _CLIENTS[1:]}
    bare, post = found[_CLIENTS[0]]
    goals = [
        Goal(
            "`POST` of 1 entity, 1 client, `wait: none`, at the median: ms more than a bare alter",
            _LIMIT_MS,
            post.latency.excess_over(bare.latency),
        )
    ]
    for number, limit in _TIMES_BARE.items():
        bare, post = found[number]
        what = f"alterations of {number} clients / of {number} bare clients, a second"
        goals.append(Goal(what, limit, post.rate.ratio_to(bare.rate), at_most=False))
    repeats = sum(client.repeats for _, post in found.values() for client in post.clients)
    note = f"{_note(run.plan, phases_ms)} Requests repeated after a 503: {repeats}."
    rows = [arm.row(bare) for bare, post in found.values() for arm in (bare, post)]
    return [Section("One alteration end to end", note, _COLUMNS, rows, goals)]


async def _measure(run: Run, number: int) -> tuple[_Windows, _Windows]:
    """Measure so many clients; the windows of a crowd are long: bare clients stand in line."""
    windows = run.plan.end_to_end_windows
    if number > _CROWD:
        windows = min(windows, _WINDOWS_OF_A_CROWD)
    async with _connected(run, number) as arms:
        for window in range(-1, windows):
            for arm in arms if window % 2 else reversed(arms):
                done = await busy(arm.clients, run.plan.end_to_end_window_s)
                for client in arm.clients:
                    for entity, value in client.altered.items():
                        await run.wire.until_readable(entity, value)
                    client.altered.clear()
                if window >= 0:
                    arm.done.append(done)
    return arms


@asynccontextmanager
async def _connected(run: Run, number: int) -> AsyncIterator[tuple[_Windows, _Windows]]:
    bare, post = _Windows("bare alter"), _Windows("`POST`, `wait: none`")
    try:
        for each in range(number):
            wire = await WireQuotas.open(run.stack.bootstrap_servers)
            bare.clients.append(_BareClient(f"end-to-end-bare-{each}", wire))
            service = await open_http(run.stack.service_port)
            post.clients.append(PostClient(f"end-to-end-post-{each}", service, run.stack.token))
        yield bare, post
    finally:
        for client in (*bare.clients, *post.clients):
            client.close()


def means_ms(before: Mapping[str, float], after: Mapping[str, float]) -> Mapping[str, float]:
    """Return the mean milliseconds of each phase that was gone through between two looks."""
    means = {}
    for phase, name in _PHASES.items():
        seconds, number = (
            after.get(sample, 0.0) - before.get(sample, 0.0)
            for sample in (
                f'quota_alteration_phase_seconds_{figure}{{cluster="default",phase="{phase}"}}'
                for figure in ("sum", "count")
            )
        )
        if number > 0:
            means[name] = seconds / number * 1000
    return means


def _note(plan: Plan, phases_ms: Mapping[str, float]) -> str:
    sections = ", ".join(f"{name} {show(mean_ms)}" for name, mean_ms in phases_ms.items())
    return (
        "Each client alters 2 keys of one entity after the other, entities of its own, on a "
        "connection of its own: the bare one to the broker, the other to the service, where each "
        "alteration is authenticated, authorized, judged, recorded before (intent) and after "
        f"(outcome) with fsync, and logged. n windows of {plan.end_to_end_window_s:g} s, in turns; "
        "rates and p50 are medians over the windows, p99 is over all alterations. With 1 client "
        f"the service's own mean times were, in ms: {sections}."
    )
