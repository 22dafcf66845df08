"""``GET /quotas`` of exactly one entity against the bare describe and the no-op route."""

from app.domain.entities import ClientQuotaFilter
from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import HttpConnection, prepared
from benchmarks.plan import Plan
from benchmarks.rounds import Arm, interleaved
from benchmarks.session import Session
from benchmarks.tables import LATENCY_COLUMNS, Goal, Section, Table, latency_rows
from benchmarks.wire import WireQuotas
from benchmarks.workload import Entities

_BARE = "bare describe"
_GET = "`GET /quotas`"
_NOOP = "no-op route"
_FROM_IMAGE = "`GET /quotas`, from the image"
_LIMIT = 2.0
_LARGE_LIMIT = 1.1
_IMAGE_LIMIT = 0.02
_OLDEST_MS = 60_000


class _BareDescribe(Arm):
    def __init__(self, wire: WireQuotas, quota_filter: ClientQuotaFilter) -> None:
        super().__init__(_BARE)
        self._wire = wire
        self._filter = quota_filter

    async def call(self) -> None:
        if len(await self._wire.describe(self._filter)) != 1:
            raise BenchmarkError("the describe did not find the one entity")


class _Get(Arm):
    def __init__(self, name: str, connection: HttpConnection, request: bytes) -> None:
        super().__init__(name)
        self._connection = connection
        self._request = request

    async def call(self) -> None:
        self.document = (await self._connection.exchange(self._request)).json()


class _GetSingle(_Get):
    async def settle(self) -> None:
        if len(self.document["quotas"]) != 1:
            raise BenchmarkError("GET /quotas did not find the one entity")


async def measure_describes(session: Session, plan: Plan, stored: Entities) -> Section:
    """Measure exact describes of one entity among those stored."""
    index = stored.count // 2
    query = stored.exact_query(index)
    arms = (
        _BareDescribe(session.wire, stored.exact(index)),
        _get(_GET, session, query),
        _Get(_NOOP, session.noop, prepared("GET", "/noop")),
    )
    measures = await interleaved(arms, rounds=plan.describes, warm_up=plan.warm_up)
    rows = latency_rows(measures, _BARE)
    note = (
        f"{stored.count:,} entities are stored, one is described: `{query}`. "
        "The first two ask the broker each time."
    )
    table = Table("Describe one entity exactly", note, (*LATENCY_COLUMNS, "x bare"), rows)
    ratio = measures[_GET].ratio_to(measures[_BARE])
    return Section(table, (Goal("exact `GET /quotas` / bare describe", _LIMIT, ratio),))


async def measure_large_describes(session: Session, plan: Plan, stored: Entities) -> Section:
    """Measure them where the broker looks through many entities for the one."""
    index = stored.count // 2
    query, cached = (stored.exact_query(index, max_age_ms=age) for age in (0, _OLDEST_MS))
    arms = (
        _BareDescribe(session.wire, stored.exact(index)),
        _get(_GET, session, query),
        _get(_FROM_IMAGE, session, cached),
    )
    await session.service.warm_up()
    measures = await interleaved(arms, rounds=plan.large_describes, warm_up=plan.warm_up)
    title = f"Describe one of {stored.count:,} entities exactly"
    note = (
        f"As with fewer entities, but the broker looks through {stored.count:,} for it each "
        f"time. The last row allows an image that is {_OLDEST_MS // 1000} s old."
    )
    rows = latency_rows(measures, _BARE)
    bare = measures[_BARE]
    goals = [
        Goal(f"exact {arm} / bare describe, {stored.count:,} entities", limit, ratio)
        for arm, limit, ratio in (
            (_GET, _LARGE_LIMIT, measures[_GET].ratio_to(bare)),
            (_FROM_IMAGE, _IMAGE_LIMIT, measures[_FROM_IMAGE].ratio_to(bare)),
        )
    ]
    return Section(Table(title, note, (*LATENCY_COLUMNS, "x bare"), rows), goals)


def _get(name: str, session: Session, query: str) -> Arm:
    request = prepared("GET", f"/quotas?{query}", token=session.stack.token)
    return _GetSingle(name, session.service, request)
