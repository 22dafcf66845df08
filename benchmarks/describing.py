"""``GET /quotas`` of exactly one entity against the bare describe and the no-op route."""

from app.domain.filters import ClientQuotaFilter
from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import HttpConnection, prepared
from benchmarks.plan import Plan
from benchmarks.rounds import Arm, interleaved
from benchmarks.session import Session
from benchmarks.tables import LATENCY_COLUMNS, Goal, Part, Table, latency_rows
from benchmarks.wire import WireQuotas
from benchmarks.workload import Entities

_BARE = "bare describe"
_GET = "`GET /quotas`"
_NOOP = "no-op route"
_LIMIT = 2.0


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
        (await self._connection.exchange(self._request)).json()


async def measure_describes(session: Session, plan: Plan, stored: Entities) -> Part:
    """Measure exact describes of one entity among those stored."""
    index = stored.count // 2
    query = stored.exact_query(index)
    get = prepared("GET", f"/quotas?{query}", token=session.stack.token)
    arms = (
        _BareDescribe(session.wire, stored.exact(index)),
        _Get(_GET, session.service, get),
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
    return Part(table, (Goal("exact `GET /quotas` / bare describe", _LIMIT, ratio),))
