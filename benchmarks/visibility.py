"""When alterations of single entities show: sent one by one, and by many clients of the service."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from benchmarks.http_connection import open_http, prepared, raise_unless_applied, was_not_sent
from benchmarks.measures import BenchmarkError, Goal, Measure, Section, show
from benchmarks.run import Run
from benchmarks.wire import KEYS, Entities

_CLIENTS = 32
_POLL_S = 0.1
"""An exact describe among 100,000 entities costs the broker 40 ms itself."""

_DEADLINE_S = 120.0
"""For all to be acknowledged, and again for all to show."""

_REPEAT_S = 0.5
"""After a 503 that says that nothing was sent."""

_LIMIT = 1 / 20
_COLUMNS = (
    "arm",
    "n",
    "all acknowledged after ms",
    "all readable, ms after the last acknowledgement",
    "all readable, ms after the first was sent",
    "x one by one, after the last acknowledgement",
    "x one by one, after the first was sent",
)


@dataclass
class _Alterations:
    """Alterations of some of the stored entities, and how often one was repeated."""

    run: Run
    stored: Entities
    indexes: Sequence[int]
    repeats: int = 0

    async def in_turn(self, value: int) -> int:
        """Send AlterClientQuotas, each when the one before has been acknowledged."""
        for index in self.indexes:
            await self.run.wire.alter([self.stored.alteration(index, value)])
        return self.indexes[-1]

    async def by_clients(self, value: int) -> int:
        """Send ``POST /quotas/alterations`` of one entity each by several clients at once."""
        token = self.run.stack.token
        requests = iter(
            {
                index: prepared(
                    "POST",
                    "/quotas/alterations",
                    token=token,
                    body=self.stored.body(value, wait="none", indexes=[index]),
                )
                for index in self.indexes
            }.items()
        )
        acknowledged: list[int] = []

        async def client() -> None:
            with closing(await open_http(self.run.stack.service_port)) as service:
                for index, request in requests:
                    while was_not_sent(answer := await service.exchange(request)):
                        self.repeats += 1
                        await asyncio.sleep(_REPEAT_S)
                    raise_unless_applied(answer)
                    acknowledged.append(index)

        try:
            async with asyncio.timeout(_DEADLINE_S):
                await asyncio.gather(*(client() for _ in range(_CLIENTS)))
        except TimeoutError as error:
            raise BenchmarkError("the service does not apply what it is sent") from error
        return acknowledged[-1]

    async def until_all_show(self, last: int, value: int) -> float:
        """Return when the describe was sent that showed all of them.

        The one that was acknowledged last is looked for first: brokers apply what is committed in
        its order, and to describe one costs them less.
        """
        wire, exact = self.run.wire, self.stored.exact(last)
        everyone = [ClientQuotaEntity.of(self.stored.names(index)) for index in self.indexes]
        asked_at = time.perf_counter()

        async def shows() -> bool:
            nonlocal asked_at
            described = await wire.describe(exact)
            if [values.get(KEYS[-1]) for values in described.values()] != [value]:
                return False
            asked_at = time.perf_counter()
            quotas = await wire.describe(ALL_ENTITIES)
            return all(quotas[entity].get(KEYS[-1]) == value for entity in everyone)

        await wire.until(shows, poll_s=_POLL_S, deadline_s=_DEADLINE_S)
        return asked_at


@dataclass(frozen=True)
class _Arm:
    """``send`` sends all and returns the index that was acknowledged last; times of all rounds."""

    name: str
    send: Callable[[int], Awaitable[int]]
    acknowledged_ms: list[float] = field(default_factory=list)
    lag_ms: list[float] = field(default_factory=list)
    readable_ms: list[float] = field(default_factory=list)

    async def measure(self, alterations: _Alterations, value: int) -> None:
        begun = time.perf_counter()
        last = await self.send(value)
        acknowledged = time.perf_counter()
        readable = await alterations.until_all_show(last, value)
        self.acknowledged_ms.append((acknowledged - begun) * 1000)
        self.lag_ms.append((readable - acknowledged) * 1000)
        self.readable_ms.append((readable - begun) * 1000)

    def row(self, base: "_Arm") -> list[str]:
        times = (self.acknowledged_ms, self.lag_ms, self.readable_ms)
        figures = [Measure(each).median for each in times]
        figures += [
            Measure(self.lag_ms).ratio_to(Measure(base.lag_ms)),
            Measure(self.readable_ms).ratio_to(Measure(base.readable_ms)),
        ]
        return [self.name, str(len(self.readable_ms)), *map(show, figures)]


async def measure_visibility(run: Run, stored: Entities) -> Section:
    """Measure alterations of some of the stored entities, spread over all of them."""
    plan = run.plan
    run.progress.say(f"altering {plan.seen_alters} of {stored.count:,}: {plan.seen_rounds} rounds")
    step = stored.count // plan.seen_alters
    alterations = _Alterations(run, stored, range(0, step * plan.seen_alters, step))
    bare = _Arm("bare alter, one by one", alterations.in_turn)
    post = _Arm(f"`POST`, `wait: none`, {_CLIENTS} clients", alterations.by_clients)
    for number in range(plan.seen_rounds):
        for each, arm in enumerate((bare, post) if number % 2 else (post, bare)):
            await arm.measure(alterations, 2_000_000 + 2 * number + each)
    count = len(alterations.indexes)
    note = (
        f"{stored.count:,} entities are stored; each of {count} of them is altered, "
        "2 keys, by a request of its own. Whoever reads sees nothing of it until the broker has "
        "copied its table of all entities for each request that reached it: the service sends "
        "alterations that wait at the same time together. It is the broker that is asked whether "
        f"all show, every {_POLL_S * 1000:g} ms. Medians of n rounds. Requests repeated after a "
        f"503: {alterations.repeats}."
    )
    goal = Goal(
        f"{count} alterations among {stored.count:,} entities, from the last acknowledgement until "
        f"all show: {_CLIENTS} clients of the service / one by one",
        _LIMIT,
        Measure(post.lag_ms).ratio_to(Measure(bare.lag_ms)),
    )
    title = f"When {count} alterations among {stored.count:,} entities show"
    return Section(title, note, _COLUMNS, [bare.row(bare), post.row(bare)], (goal,))
