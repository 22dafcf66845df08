"""When alterations of single entities show: sent one by one, and by many clients of the service."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from benchmarks.altered import raise_unless_applied, was_not_sent
from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import open_http, prepared
from benchmarks.measures import Measure
from benchmarks.plan import Plan
from benchmarks.session import Session
from benchmarks.tables import Goal, Section, Table, show
from benchmarks.workload import KEYS, Entities

_CLIENTS = 32
_POLL_S = 0.1
"""An exact describe among 100,000 entities costs the broker 40 ms itself."""

_DEADLINE_S = 120.0
"""For all to be acknowledged, and again for all to show."""

_REPEAT_S = 0.5
"""After a 503 that says that nothing was sent."""

_LIMIT = 1 / 20
_BARE = "bare alter, one by one"
_POST = f"`POST`, `wait: none`, {_CLIENTS} clients"
_COLUMNS = (
    "arm",
    "n",
    "all acknowledged after ms",
    "all readable, ms after the last acknowledgement",
    "all readable, ms after the first was sent",
    "x one by one, after the last acknowledgement",
    "x one by one, after the first was sent",
)


class _Sender(ABC):
    """Sends single alterations; the times are those of all rounds, in milliseconds."""

    def __init__(
        self, name: str, session: Session, stored: Entities, indexes: Sequence[int]
    ) -> None:
        self.name = name
        self.session = session
        self.stored = stored
        self.indexes = indexes
        self.acknowledged_ms: list[float] = []
        self.readable_ms: list[float] = []

    @abstractmethod
    async def send(self, value: int) -> int:
        """Send all; return the index of the last that was acknowledged."""

    async def measure(self, value: int) -> None:
        """Send all, and wait until all show."""
        begun = time.perf_counter()
        last = await self.send(value)
        acknowledged = time.perf_counter()
        until_all = await self._until_all_show(last, value)
        self.acknowledged_ms.append((acknowledged - begun) * 1000)
        self.readable_ms.append((until_all - begun) * 1000)

    async def _until_all_show(self, last: int, value: int) -> float:
        """Return when the describe was sent that showed all of them.

        The one that was acknowledged last is looked for first: brokers apply what is committed in
        its order, and to describe one costs them less.
        """
        wire = self.session.wire
        exact = self.stored.exact(last)
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

    @property
    def acknowledged(self) -> Measure:
        """From the first one sent until the last one was acknowledged."""
        return Measure(self.acknowledged_ms)

    @property
    def readable(self) -> Measure:
        """From the first one sent until all showed."""
        return Measure(self.readable_ms)

    @property
    def lag(self) -> Measure:
        """From the last acknowledgement until all showed."""
        pairs = zip(self.readable_ms, self.acknowledged_ms, strict=True)
        return Measure(
            [until_readable - until_acknowledged for until_readable, until_acknowledged in pairs]
        )


class _Sequential(_Sender):
    """AlterClientQuotas, each when the one before has been acknowledged."""

    async def send(self, value: int) -> int:
        for index in self.indexes:
            await self.session.wire.alter([self.stored.alteration(index, value)])
        return self.indexes[-1]


class _Clients(_Sender):
    """``POST /quotas/alterations`` of one entity each, by several clients at the same time."""

    repeats = 0

    async def send(self, value: int) -> int:
        requests = {index: self._request(index, value) for index in self.indexes}
        acknowledged: list[int] = []
        left = iter(requests.items())

        async def client() -> None:
            service = await open_http(self.session.stack.service_port)
            try:
                for index, request in left:
                    while was_not_sent(answer := await service.exchange(request)):
                        self.repeats += 1
                        await asyncio.sleep(_REPEAT_S)
                    raise_unless_applied(answer)
                    acknowledged.append(index)
            finally:
                service.close()

        try:
            async with asyncio.timeout(_DEADLINE_S):
                await asyncio.gather(*(client() for _ in range(_CLIENTS)))
        except TimeoutError as error:
            raise BenchmarkError("the service does not apply what it is sent") from error
        return acknowledged[-1]

    def _request(self, index: int, value: int) -> bytes:
        body = self.stored.body_of(index, value, wait="none")
        token = self.session.stack.token
        return prepared("POST", "/quotas/alterations", token=token, body=body)


async def measure_visibility(session: Session, plan: Plan, stored: Entities) -> Section:
    """Measure alterations of some of the stored entities, spread over all of them."""
    step = stored.count // plan.seen_alters
    indexes = range(0, step * plan.seen_alters, step)
    sequential = _Sequential(_BARE, session, stored, indexes)
    clients = _Clients(_POST, session, stored, indexes)
    for number in range(plan.seen_rounds):
        arms = (sequential, clients) if number % 2 else (clients, sequential)
        for each, arm in enumerate(arms):
            await arm.measure(2_000_000 + 2 * number + each)
    note = (
        f"{stored.count:,} entities are stored; each of {len(indexes)} of them is altered, "
        "2 keys, by a request of its own. Whoever reads sees nothing of it until the broker has "
        "copied its table of all entities for each request that reached it: the service sends "
        "alterations that wait at the same time together. It is the broker that is asked whether "
        f"all show, every {_POLL_S * 1000:g} ms. Medians of n rounds. Requests repeated after a "
        f"503: {clients.repeats}."
    )
    rows = [_row(arm, sequential) for arm in (sequential, clients)]
    text = (
        f"{len(indexes)} alterations among {stored.count:,} entities, from the last "
        f"acknowledgement until all show: {_CLIENTS} clients of the service / one by one"
    )
    goal = Goal(text, _LIMIT, clients.lag.ratio_to(sequential.lag))
    title = f"When {len(indexes)} alterations among {stored.count:,} entities show"
    return Section(Table(title, note, _COLUMNS, rows), (goal,))


def _row(arm: _Sender, base: _Sender) -> list[str]:
    return [
        arm.name,
        str(arm.readable.n),
        *(show(item.median) for item in (arm.acknowledged, arm.lag, arm.readable)),
        show(arm.lag.ratio_to(base.lag)),
        show(arm.readable.ratio_to(base.readable)),
    ]
