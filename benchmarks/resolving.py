"""Resolves from the image: one identity, 10,000 in one request, and while it is renewed."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity
from benchmarks.http_connection import metrics, open_http, prepared
from benchmarks.loading import PACED_LEAD_S, Generator, Load, Target, load_generator
from benchmarks.measures import (
    Arm,
    BenchmarkError,
    Goal,
    Measure,
    Section,
    interleaved,
    show,
    timed,
)
from benchmarks.run import Run
from benchmarks.wire import KEYS, Entities

_CONNECTIONS: Final = (1, 32)
_MOST_CONNECTIONS: Final = max(_CONNECTIONS)
_OURS: Final = "`GET /quotas/resolve`"
_RANDOM: Final = "`GET /quotas/resolve`, random identities"
_LIMITS: Final = {_OURS: 0.5, _RANDOM: 0.4}
"""Of the no-op with the same authentication, at the most connections."""
_DIFFERENT: Final = 20_000
"""Random identities: many more than there are cached texts."""
_STRIDE: Final = 7_919
"""A prime: entities that are taken in such steps lie all over."""
_FLOOR: Final = "no-op, authenticated"
_IDENTITIES: Final = 10_000
_MANY_LIMIT_MS: Final = 100.0
_MANY: Final = f"`POST /quotas/resolve`, {_IDENTITIES:,} identities"
_COLUMNS: Final = (
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


def _target(run: Run, stored: Entities, **options: str) -> Target:
    path = _path(stored, stored.count // 2, **options)
    return Target(run.stack.service_port, path, run.stack.token)


def _path(stored: Entities, index: int, **options: str) -> str:
    return f"/quotas/resolve?{urlencode({**stored.names(index), **options})}"


def _random(ours: Target, stored: Entities) -> Target:
    """Return a target of identities of which none comes again soon: no text of them is cached."""
    indexes = (number * _STRIDE % stored.count for number in range(min(stored.count, _DIFFERENT)))
    return replace(ours, others=tuple(_path(stored, index) for index in indexes))


def _rate(loads: Sequence[Load]) -> Measure:
    return Measure([load.requests_per_s for load in loads])


async def measure_resolves(run: Run) -> list[Section]:
    """Measure the routes in turns, with one connection and with many; then many identities."""
    plan, stored = run.plan, Entities("all", max(run.plan.everything))
    await run.store(stored)
    run.progress.say(f"resolving: {plan.windows} windows of each kind")
    ours = _target(run, stored)
    targets = {
        _OURS: ours,
        _RANDOM: _random(ours, stored),
        "no-op": Target(run.stack.noop_port, "/noop"),
        _FLOOR: Target(run.stack.noop_port, "/noop/authenticated", run.stack.token),
    }
    rows, goals = [], []
    with load_generator() as generator:
        for connections in _CONNECTIONS:
            loads: dict[str, list[Load]] = {route: [] for route in targets}
            for window in range(-1, plan.windows):
                for route in list(targets)[:: 1 if window % 2 else -1]:
                    load = await generator.run(targets[route], connections, plan.window_s)
                    if window >= 0:
                        loads[route].append(load)
            floor = _rate(loads[_FLOOR])
            rows += [_row(connections, route, loads[route], floor) for route in targets]
            if connections == _MOST_CONNECTIONS:
                for route, limit in _LIMITS.items():
                    text = f"{route} / {_FLOOR}, {connections} connections"
                    ratio = _rate(loads[route]).ratio_to(floor)
                    goals.append(Goal(text, limit, ratio, at_most=False))
    many = await _measure_many(run, stored)
    rates = [1000 / ms for ms in (many.maximum, many.median, many.minimum)]
    rows.append(["1", _MANY, str(many.n), *map(show, (*rates, many.median, many.p99)), ""])
    goals.append(Goal(f"{_MANY}, at the median: ms", _MANY_LIMIT_MS, many.median))
    note = (
        f"`{ours.path.partition('?')[2]}` among {stored.count:,} stored entities, default "
        "`max_age_ms`, with authentication, authorization, access log and metrics; the no-ops are "
        "FastAPI routes on the same server settings, one without any of it, one that checks the "
        f"same token. Random identities are {min(stored.count, _DIFFERENT):,} that are stored, "
        "asked in turns: more than there are cached texts. "
        f"n windows of {plan.window_s:g} s, in turns; latencies are medians over the "
        "windows. The load generator is a process of its own (asyncio, uvloop, httptools). Of the "
        f"{_IDENTITIES:,} identities of the last row half are stored; it is timed one by one."
    )
    return [Section("Resolve from the image", note, _COLUMNS, rows, goals)]


def _row(connections: int, route: str, loads: Sequence[Load], floor: Measure) -> list[str]:
    rate = _rate(loads)
    figures = (
        rate.minimum,
        rate.median,
        rate.maximum,
        Measure([load.p50_ms for load in loads]).median,
        Measure([load.p99_ms for load in loads]).median,
        rate.ratio_to(floor),
    )
    return [str(connections), route, str(rate.n), *map(show, figures)]


async def _measure_many(run: Run, stored: Entities) -> Measure:
    """Measure one request with many identities, half of them stored, and its whole answer."""
    identities = [
        stored.names(at // 2 % stored.count) if at % 2 else {"user": f"u{at}"}
        for at in range(_IDENTITIES)
    ]
    body = json.dumps({"identities": identities}).encode()
    request = prepared("POST", "/quotas/resolve", token=run.stack.token, body=body)

    async def measure() -> float:
        await run.service.warm_up()
        with timed() as took:
            answer = (await run.service.exchange(request)).body
        if len(json.loads(answer).get("results", ())) != _IDENTITIES:
            raise BenchmarkError(f"not everything is resolved: {answer[:200]!r}")
        return took.ms

    rounds, warm_up = run.plan.batch_alters, run.plan.warm_up
    return (await interleaved([Arm(_MANY, measure)], rounds=rounds, warm_up=warm_up))[_MANY]


_OLDEST_MS: Final = 60_000
_CHANGE_EVERY_S: Final = 0.1
_READ_EVERY_S: Final = 0.1
"""How often another client resolves while the no-op is measured: the image is renewed."""

_LIMIT_MS: Final = 10.0
_DESCRIBES: Final = (
    'quotas_kafka_request_seconds_count{api="DescribeClientQuotas",cluster="default",'
    'result="answered"}'
)
_RENEWAL_COLUMNS: Final = (
    "image",
    "n",
    "requests",
    "renewals /s",
    "changes /s",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "x p99 of not renewed",
)

Change = Callable[[Entities, int], ClientQuotaAlteration]


def _value(stored: Entities, number: int) -> ClientQuotaAlteration:
    entity = ClientQuotaEntity.of(stored.names(number * _STRIDE % stored.count))
    return ClientQuotaAlteration(entity, (Op(KEYS[0], Decimal(1000 + number)),))


def _coming_and_going(_: Entities, number: int) -> ClientQuotaAlteration:
    """Return every other time an entity that is new, else the removal of the one before."""
    entity = ClientQuotaEntity.of({"user": f"passing-{number // 2:05}"})
    op = Op(KEYS[0], remove=True) if number % 2 else Op(KEYS[0], Decimal(1000))
    return ClientQuotaAlteration(entity, (op,))


@dataclass(frozen=True)
class _Renewal:
    """One arm: how the image is renewed, or not; the figures of its windows.

    That of the no-op shows what the machine itself makes of it: its process does nothing else.
    """

    name: str
    change: Change | None = None
    renewed: bool = True
    noop: bool = False
    loads: list[Load] = field(default_factory=list)
    renewals_per_s: list[float] = field(default_factory=list)
    changes_per_s: list[float] = field(default_factory=list)

    @property
    def p99_ms(self) -> Measure:
        return Measure([load.p99_ms for load in self.loads])

    def row(self, base: Measure) -> list[str]:
        columns = zip(*self.loads, strict=True)
        answers, _, p50_ms, p99_ms, p999_ms, max_ms = (Measure(list(column)) for column in columns)
        figures = (
            Measure(self.renewals_per_s).median,
            Measure(self.changes_per_s).median,
            p50_ms.median,
            p99_ms.median,
            p999_ms.median,
            max_ms.maximum,
            p99_ms.ratio_to(base),
        )
        return [self.name, str(answers.n), f"{int(answers.median):,}", *map(show, figures)]


async def measure_renewals(run: Run, stored: Entities) -> Section:
    """Measure all arms in turns; of what comes and goes nothing stays."""
    plan = run.plan
    run.progress.say(f"resolving from an image that is renewed: {plan.paced_windows} rounds")
    arms = (
        _Renewal("not renewed", renewed=False),
        _Renewal("renewed, nothing changes"),
        _Renewal("renewed, values change", _value),
        _Renewal("renewed, entities come and go", _coming_and_going),
        _Renewal("no-op, beside values that change", _value, noop=True),
        _Renewal("no-op, beside entities that come and go", _coming_and_going, noop=True),
    )
    with load_generator() as generator:
        for window in range(-1, plan.paced_windows):
            for arm in arms if window % 2 else reversed(arms):
                await _measure_window(generator, run, stored, arm)
                if window < 0:
                    for figures in (arm.loads, arm.renewals_per_s, arm.changes_per_s):
                        figures.clear()
    note = (
        f"`GET /quotas/resolve` for one of {stored.count:,} entities, {plan.paced_rate:,g} "
        f"requests a second over {_MOST_CONNECTIONS} connections, each sent when it is due, "
        "whatever becomes of those before; latencies count from the time at which a request was "
        f"due. The first row allows an image that is {_OLDEST_MS // 1000} s old, the others the "
        "default, 5 s. Beside the last four another client alters one entity every "
        f"{_CHANGE_EVERY_S * 1000:g} ms past the service. Beside the no-op route, of a process of "
        f"its own, the same goes on, and one resolve every {_READ_EVERY_S * 1000:g} ms has the "
        f"image renewed. n windows of {plan.paced_s:g} s, after "
        f"{PACED_LEAD_S:g} s of the same that are not counted, in turns; medians over the "
        "windows, but for the maximum."
    )
    goals = [
        Goal(f"`GET /quotas/resolve`, image {arm.name}: p99 in ms", _LIMIT_MS, arm.p99_ms.median)
        for arm in arms
        if arm.change is not None and not arm.noop
    ]
    rows = [arm.row(arms[0].p99_ms) for arm in arms]
    title = f"Resolve while the image of {stored.count:,} entities is renewed"
    return Section(title, note, _RENEWAL_COLUMNS, rows, goals)


async def _measure_window(generator: Generator, run: Run, stored: Entities, arm: _Renewal) -> None:
    options = {} if arm.renewed else {"max_age_ms": str(_OLDEST_MS)}
    resolve = _target(run, stored, **options)
    target = Target(run.stack.noop_port, "/noop") if arm.noop else resolve
    port, stop = run.stack.service_port, asyncio.Event()
    before, begun = (await metrics(port)).get(_DESCRIBES, 0.0), time.perf_counter()
    changing = asyncio.create_task(_keep_changing(run, stored, arm.change, stop))
    reading = asyncio.create_task(_keep_reading(resolve, stop)) if arm.noop else None
    try:
        plan = run.plan
        load = await generator.run(target, _MOST_CONNECTIONS, plan.paced_s, plan.paced_rate)
    finally:
        stop.set()
        changes = await changing
        if reading is not None:
            await reading
    seconds = time.perf_counter() - begun
    arm.loads.append(load)
    arm.renewals_per_s.append(((await metrics(port)).get(_DESCRIBES, 0.0) - before) / seconds)
    arm.changes_per_s.append(changes / seconds)


async def _keep_changing(
    run: Run, stored: Entities, change: Change | None, stop: asyncio.Event
) -> int:
    """Alter one entity after the other, if at all; return how many, an even number."""
    number = 0
    while change is not None and (number % 2 or not stop.is_set()):
        await run.wire.alter([change(stored, number)])
        number += 1
        await asyncio.sleep(_CHANGE_EVERY_S)
    return number


async def _keep_reading(target: Target, stop: asyncio.Event) -> None:
    """Ask a route again and again, with a pause."""
    with closing(await open_http(target.port)) as connection:
        while not stop.is_set():
            await connection.exchange(prepared("GET", target.path, token=target.token))
            await asyncio.sleep(_READ_EVERY_S)
