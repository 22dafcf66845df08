"""How long a resolve takes while the image is renewed and the entities change."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity
from benchmarks.http_connection import open_http, prepared
from benchmarks.loading import PACED_LEAD_S, OwnGenerator, PacedLoad, Target, own_generator
from benchmarks.measures import Measure
from benchmarks.plan import Plan
from benchmarks.session import Session
from benchmarks.tables import Goal, Section, Table, show
from benchmarks.workload import KEYS, Entities

_CONNECTIONS: Final = 32
_OLDEST_MS: Final = 60_000
_CHANGE_EVERY_S: Final = 0.1
_READ_EVERY_S: Final = 0.1
"""How often another client resolves while the no-op is measured: the image is renewed."""

_STRIDE: Final = 7_919
"""A prime: the changed entities lie all over."""

_LIMIT_MS: Final = 10.0
_DESCRIBES: Final = re.compile(
    rb'^kafka_request_seconds_count\{api="DescribeClientQuotas",result="answered"\} (\S+)$',
    re.MULTILINE,
)
_COLUMNS = (
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
class _Arm:
    """One arm: how the image is renewed, or not; the figures of its windows.

    That of the no-op shows what the machine itself makes of it: its process does nothing else.
    """

    name: str
    max_age_ms: int | None = None
    change: Change | None = None
    noop: bool = False
    loads: list[PacedLoad] = field(default_factory=list)
    renewals_per_s: list[float] = field(default_factory=list)
    changes_per_s: list[float] = field(default_factory=list)

    @property
    def p99_ms(self) -> Measure:
        return Measure([load.p99_ms for load in self.loads])

    def row(self, base: Measure) -> list[str]:
        columns = zip(*self.loads, strict=True)
        answers, _, p50_ms, _, p999_ms, max_ms = (Measure(list(column)) for column in columns)
        figures = (
            Measure(self.renewals_per_s).median,
            Measure(self.changes_per_s).median,
            p50_ms.median,
            self.p99_ms.median,
            p999_ms.median,
            max_ms.maximum,
            self.p99_ms.ratio_to(base),
        )
        requests = f"{int(answers.median):,}"
        return [self.name, str(answers.n), requests, *map(show, figures)]


async def measure_image_refresh(session: Session, plan: Plan, stored: Entities) -> Section:
    """Measure all arms in turns; of what comes and goes nothing stays."""
    arms = (
        _Arm("not renewed", max_age_ms=_OLDEST_MS),
        _Arm("renewed, nothing changes"),
        _Arm("renewed, values change", change=_value),
        _Arm("renewed, entities come and go", change=_coming_and_going),
        _Arm("no-op, beside values that change", change=_value, noop=True),
        _Arm("no-op, beside entities that come and go", change=_coming_and_going, noop=True),
    )
    with own_generator() as generator:
        for window in range(-1, plan.paced_windows):
            for arm in arms if window % 2 else reversed(arms):
                await _measure(generator, session, plan, stored, arm)
                if window < 0:
                    arm.loads.clear()
                    arm.renewals_per_s.clear()
                    arm.changes_per_s.clear()
    return _section(arms, plan, stored)


def _section(arms: Sequence[_Arm], plan: Plan, stored: Entities) -> Section:
    base = arms[0].p99_ms
    note = (
        f"`GET /quotas/resolve` for one of {stored.count:,} entities, {plan.paced_rate:,g} "
        f"requests a second over {_CONNECTIONS} connections, each sent when it is due, whatever "
        "becomes of those before; latencies count from the time at which a request was due. The "
        f"first row allows an image that is {_OLDEST_MS // 1000} s old, the others the default, "
        "5 s. Beside the last four another client alters one entity every "
        f"{_CHANGE_EVERY_S * 1000:g} ms past the service. Beside the no-op route, of a process of "
        f"its own, the same goes on, and one resolve every {_READ_EVERY_S * 1000:g} ms has the "
        f"image renewed. n windows of {plan.paced_s:g} s, after "
        f"{PACED_LEAD_S:g} s of the same that are not counted, in turns; medians over the "
        "windows, but for the maximum."
    )
    title = f"Resolve while the image of {stored.count:,} entities is renewed"
    goals = [
        Goal(f"`GET /quotas/resolve`, image {arm.name}: p99 in ms", _LIMIT_MS, arm.p99_ms.median)
        for arm in arms
        if arm.change is not None and not arm.noop
    ]
    return Section(Table(title, note, _COLUMNS, [arm.row(base) for arm in arms]), goals)


async def _measure(
    generator: OwnGenerator, session: Session, plan: Plan, stored: Entities, arm: _Arm
) -> None:
    query = {**stored.names(stored.count // 2)}
    if arm.max_age_ms is not None:
        query["max_age_ms"] = str(arm.max_age_ms)
    stack = session.stack
    target = Target(stack.service_port, f"/quotas/resolve?{urlencode(query)}", stack.token)
    changing = reading = None
    stop = asyncio.Event()
    if arm.change is not None:
        changing = asyncio.create_task(_keep_changing(session, stored, arm.change, stop))
    if arm.noop:
        reading = asyncio.create_task(_keep_reading(target, stop))
        target = Target(stack.noop_port, "/noop")
    before, begun = await _describes(session), time.perf_counter()
    try:
        load = await asyncio.to_thread(
            generator.run_paced, target, _CONNECTIONS, plan.paced_s, plan.paced_rate
        )
    finally:
        stop.set()
        changes = 0 if changing is None else await changing
        if reading is not None:
            await reading
    seconds = time.perf_counter() - begun
    arm.loads.append(load)
    arm.renewals_per_s.append((await _describes(session) - before) / seconds)
    arm.changes_per_s.append(changes / seconds)


async def _keep_changing(
    session: Session, stored: Entities, change: Change, stop: asyncio.Event
) -> int:
    """Alter one entity after the other; return how many, an even number."""
    number = 0
    while number % 2 or not stop.is_set():
        await session.wire.alter([change(stored, number)])
        number += 1
        await asyncio.sleep(_CHANGE_EVERY_S)
    return number


async def _keep_reading(target: Target, stop: asyncio.Event) -> None:
    """Ask a route again and again, with a pause."""
    connection = await open_http(target.port)
    try:
        while not stop.is_set():
            await connection.exchange(prepared("GET", target.path, token=target.token))
            await asyncio.sleep(_READ_EVERY_S)
    finally:
        connection.close()


async def _describes(session: Session) -> float:
    """Return how many describes the service has had answered."""
    connection = await open_http(session.stack.service_port)
    try:
        answer = await connection.exchange(prepared("GET", "/metrics"))
    finally:
        connection.close()
    found = _DESCRIBES.search(answer.body)
    return float(found[1]) if found else 0.0
