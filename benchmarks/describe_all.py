"""Describe everything: the bytes alone, this service, and other clients."""

import time
from collections.abc import Mapping, Sequence

from app.domain.entities import ALL_ENTITIES
from app.kafka.describe_all import DescribedAll
from app.kafka.quota_messages import NEWEST_VERSION
from benchmarks.competitors.jobs import DESCRIBE
from benchmarks.competitors.process import WarmPeer
from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import OK, Answer, prepared
from benchmarks.measures import Measure
from benchmarks.plan import Plan
from benchmarks.rounds import Arm, interleaved
from benchmarks.seed import store
from benchmarks.session import Session
from benchmarks.tables import LATENCY_COLUMNS, Goal, Section, Table, latency_rows, show
from benchmarks.workload import Entities

_RECEIVED = "received, not decoded"
_COLD = "image, nothing read before"
_SAME = "image, nothing has changed"
_GET_CHANGED = "`GET /quotas`, one entity has changed"
_GET_SAME = "`GET /quotas`, nothing has changed"
_OLDEST_MS = 60_000
_ANEW_LIMIT = 2.0
_SAME_LIMIT = 1.1
_FIRST_BYTE_LIMIT = 0.5
_COLUMNS = (*LATENCY_COLUMNS, "x received", "first byte p50 ms")


class _Receive(Arm):
    """The bytes of the answer, over the warm connection of the session."""

    def __init__(self, session: Session) -> None:
        super().__init__(_RECEIVED)
        self._wire = session.wire

    async def call(self) -> None:
        await self._wire.receive(ALL_ENTITIES)


class _Image(Arm):
    """The bytes, and what the service makes of them."""

    def __init__(self, name: str, session: Session, count: int, *, cold: bool) -> None:
        super().__init__(name)
        self._wire = session.wire
        self._count = count
        self._cold = cold

    async def prepare(self) -> None:
        self._image = DescribedAll()
        if not self._cold:
            await self.call()

    async def call(self) -> None:
        payload = await self._wire.receive(ALL_ENTITIES)
        answer, _ = await self._image.read(payload, NEWEST_VERSION)
        if answer.quotas is None or len(answer.quotas) != self._count:
            raise BenchmarkError("the image has not every entity")


class _Get(Arm):
    """``GET /quotas``, the whole answer in JSON."""

    def __init__(self, name: str, session: Session, count: int, *, max_age_ms: int) -> None:
        super().__init__(name)
        self.session = session
        self._count = count
        token = session.stack.token
        self._request = prepared("GET", f"/quotas?max_age_ms={max_age_ms}", token=token)
        self.first_byte_ms: list[float] = []

    async def prepare(self) -> None:
        await self.session.service.warm_up()
        await self.call()

    async def call(self) -> None:
        self._begun = time.perf_counter()
        self._answer: Answer = await self.session.service.exchange(self._request)

    async def settle(self) -> None:
        self.first_byte_ms.append((self.session.service.first_byte_at - self._begun) * 1000)
        found = self._answer.body.count(b'"entity_key":')
        if self._answer.status != OK or found != self._count:
            raise BenchmarkError("GET /quotas has not every entity")


class _GetChanged(_Get):
    """The same after one entity has changed."""

    def __init__(self, name: str, session: Session, stored: Entities) -> None:
        super().__init__(name, session, stored.count, max_age_ms=0)
        self._first = Entities(stored.arm)
        self._value = 1

    async def prepare(self) -> None:
        await super().prepare()
        self._value += 1
        await store(self.session.wire, self._first, self._value)


class _PeerDescribe(Arm):
    def __init__(self, peer: WarmPeer, count: int) -> None:
        super().__init__(peer.name)
        self._peer = peer
        self._count = count

    async def call(self) -> float:
        ms, entities = await self._peer.ask(DESCRIBE)
        if entities != self._count:
            raise BenchmarkError(f"{self.name} has described {entities} of {self._count} entities")
        return ms


async def measure_describe_all(
    session: Session, plan: Plan, stored: Entities, peers: Sequence[WarmPeer]
) -> Section:
    """Measure describes of all entities, which are those stored and no others."""
    count = stored.count
    arms: list[Arm] = [
        _Receive(session),
        _Image(_COLD, session, count, cold=True),
        _Image(_SAME, session, count, cold=False),
        _GetChanged(_GET_CHANGED, session, stored),
        _Get(_GET_SAME, session, count, max_age_ms=0),
        _Get("`GET /quotas`, from the image", session, count, max_age_ms=_OLDEST_MS),
    ]
    arms += [_PeerDescribe(peer, count) for peer in peers]
    size = len(await session.wire.receive(ALL_ENTITIES))
    warm_up = min(plan.warm_up, 2)
    rounds = plan.describe_all_rounds(count)
    measures = await interleaved(arms, rounds=rounds, warm_up=warm_up)
    first_bytes = {
        arm.name: Measure(arm.first_byte_ms[-rounds:]) for arm in arms if isinstance(arm, _Get)
    }
    rows = [
        [*row, show(first_bytes[row[0]].median) if row[0] in first_bytes else ""]
        for row in latency_rows(measures, _RECEIVED)
    ]
    note = (
        f"2 keys each, all with the same values, {size:,} bytes from the broker. The first three "
        "are calls in this process over the service's own transport: the bytes alone, then with "
        "what the service makes of them when it reads everything, and when the same bytes have "
        "come as before. `GET /quotas` is the whole answer as sorted JSON from the warm service: "
        "the first two ask the broker each time, the third allows an image that is "
        f"{_OLDEST_MS // 1000} s old. The other clients end with objects of their library."
    )
    table = Table(f"Describe all of {count:,} entities", note, _COLUMNS, rows)
    goals = _goals(count, measures, first_bytes) if count >= plan.large else ()
    return Section(table, goals, measures)


def _goals(
    count: int, measures: Mapping[str, Measure], first_bytes: Mapping[str, Measure]
) -> list[Goal]:
    received, changed = measures[_RECEIVED], measures[_GET_CHANGED]
    limits = {
        _COLD: _ANEW_LIMIT,
        _SAME: _SAME_LIMIT,
        _GET_CHANGED: _ANEW_LIMIT,
        _GET_SAME: _SAME_LIMIT,
    }
    goals = [
        Goal(f"{name} / received, {count:,} entities", limit, measures[name].ratio_to(received))
        for name, limit in limits.items()
    ]
    first = first_bytes[_GET_CHANGED].ratio_to(changed)
    return [*goals, Goal(f"{_GET_CHANGED}: first byte / all of it", _FIRST_BYTE_LIMIT, first)]
