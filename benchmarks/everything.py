"""Describe everything: the bytes alone, this service, and other clients."""

from collections.abc import Sequence

from app.domain.filters import ALL_ENTITIES
from app.kafka.described_all import DescribedAll
from app.kafka.messages import NEWEST_VERSION
from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import OK, Answer, prepared
from benchmarks.peers.jobs import DESCRIBE
from benchmarks.peers.process import WarmPeer
from benchmarks.plan import Plan
from benchmarks.rounds import Arm, interleaved
from benchmarks.session import Session
from benchmarks.storing import store
from benchmarks.tables import LATENCY_COLUMNS, Part, Table, latency_rows
from benchmarks.workload import Entities

_RECEIVED = "received, not decoded"
_OLDEST_MS = 60_000


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
        answer, _ = self._image.read(payload, NEWEST_VERSION)
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

    async def prepare(self) -> None:
        await self.session.service.warm_up()
        await self.call()

    async def call(self) -> None:
        self._answer: Answer = await self.session.service.exchange(self._request)

    async def settle(self) -> None:
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


async def measure_everything(
    session: Session, plan: Plan, stored: Entities, peers: Sequence[WarmPeer]
) -> Part:
    """Measure describes of all entities, which are those stored and no others."""
    count = stored.count
    arms: list[Arm] = [
        _Receive(session),
        _Image("image, nothing read before", session, count, cold=True),
        _Image("image, nothing has changed", session, count, cold=False),
        _GetChanged("`GET /quotas`, one entity has changed", session, stored),
        _Get("`GET /quotas`, nothing has changed", session, count, max_age_ms=0),
        _Get("`GET /quotas`, from the image", session, count, max_age_ms=_OLDEST_MS),
    ]
    arms += [_PeerDescribe(peer, count) for peer in peers]
    size = len(await session.wire.receive(ALL_ENTITIES))
    warm_up = min(plan.warm_up, 2)
    measures = await interleaved(arms, rounds=plan.describe_all_rounds(count), warm_up=warm_up)
    rows = latency_rows(measures, _RECEIVED)
    note = (
        f"2 keys each, {size:,} bytes from the broker. The first three are calls in this process "
        "over the service's own transport: the bytes alone, then with what the service makes of "
        "them when it reads everything, and when the same bytes have come as before. `GET /quotas` "
        "is the whole answer as sorted JSON from the warm service: the first two ask the broker "
        f"each time, the third allows an image that is {_OLDEST_MS // 1000} s old. The other "
        "clients end with objects of their library."
    )
    title = f"Describe all of {count:,} entities"
    table = Table(title, note, (*LATENCY_COLUMNS, "x received"), rows)
    return Part(table, measures=measures)
