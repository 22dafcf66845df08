"""Describes: one entity exactly, and everything."""

import time
from collections.abc import Mapping, Sequence
from functools import partial

from app.domain.entities import ALL_ENTITIES, ClientQuotaFilter
from app.kafka.describe_all import DescribedAll
from benchmarks.competitors.peers import DESCRIBE, Worker, read_result
from benchmarks.http_connection import OK, HttpConnection, prepared
from benchmarks.measures import (
    LATENCY_COLUMNS,
    Arm,
    BenchmarkError,
    Goal,
    Measure,
    Section,
    interleaved,
    latency_rows,
    show,
    timed,
)
from benchmarks.run import Run
from benchmarks.wire import VERSION, Entities

_OLDEST_MS = 60_000


async def _bare_describe(run: Run, quota_filter: ClientQuotaFilter) -> float:
    with timed() as took:
        quotas = await run.wire.describe(quota_filter)
    if len(quotas) != 1:
        raise BenchmarkError("the describe did not find the one entity")
    return took.ms


async def _get(service: HttpConnection, request: bytes, count: int) -> float:
    """Ask a route of which so many entities are expected, the whole answer in JSON."""
    with timed() as took:
        answer = await service.exchange(request)
    found = answer.body.count(b'"entity_key":')
    if answer.status != OK or found != count:
        raise BenchmarkError(f"{request.decode().splitlines()[0]} has {found} of {count} entities")
    return took.ms


_BARE = "bare describe"
_GET = "`GET /quotas`"
_FROM_IMAGE = "`GET /quotas`, from the image"
_LIMIT = 2.0
_LARGE_LIMIT = 1.1
_IMAGE_LIMIT = 0.02


async def measure_describes(run: Run) -> list[Section]:
    """Measure exact describes of one entity among those stored, and the no-op route."""
    run.progress.say(f"describing: {run.plan.describes} rounds")
    noop = Arm("no-op route", partial(_get, run.noop, prepared("GET", "/noop"), 0))
    query, measures = await _exact(run, run.stored, noop, run.plan.describes)
    note = (
        f"{run.stored.count:,} entities are stored, one is described: `{query}`. "
        "The first two ask the broker each time."
    )
    ratio = measures[_GET].ratio_to(measures[_BARE])
    goal = Goal("exact `GET /quotas` / bare describe", _LIMIT, ratio)
    return [_exact_section("Describe one entity exactly", note, measures, [goal])]


async def _large_describes(run: Run, stored: Entities) -> Section:
    """Measure them where the broker looks through many entities for the one."""
    run.progress.say(f"describing one of {stored.count:,}: {run.plan.large_describes} rounds")
    query = stored.exact_query(stored.count // 2, max_age_ms=_OLDEST_MS)
    request = prepared("GET", f"/quotas?{query}", token=run.stack.token)
    from_image = Arm(_FROM_IMAGE, partial(_get, run.service, request, 1))
    await run.service.warm_up()
    _, measures = await _exact(run, stored, from_image, run.plan.large_describes)
    note = (
        f"As with fewer entities, but the broker looks through {stored.count:,} for it each "
        f"time. The last row allows an image that is {_OLDEST_MS // 1000} s old."
    )
    goals = [
        Goal(
            f"exact {arm} / bare describe, {stored.count:,} entities",
            limit,
            measures[arm].ratio_to(measures[_BARE]),
        )
        for arm, limit in ((_GET, _LARGE_LIMIT), (_FROM_IMAGE, _IMAGE_LIMIT))
    ]
    title = f"Describe one of {stored.count:,} entities exactly"
    return _exact_section(title, note, measures, goals)


async def _exact(
    run: Run, stored: Entities, other: Arm, rounds: int
) -> tuple[str, Mapping[str, Measure]]:
    """Return the query for one of the stored entities, and what each arm took."""
    index = stored.count // 2
    query = stored.exact_query(index)
    request = prepared("GET", f"/quotas?{query}", token=run.stack.token)
    arms = (
        Arm(_BARE, partial(_bare_describe, run, stored.exact(index))),
        Arm(_GET, partial(_get, run.service, request, 1)),
        other,
    )
    return query, await interleaved(arms, rounds=rounds, warm_up=run.plan.warm_up)


def _exact_section(
    title: str, note: str, measures: Mapping[str, Measure], goals: Sequence[Goal]
) -> Section:
    columns = (*LATENCY_COLUMNS, "x bare")
    return Section(title, note, columns, latency_rows(measures, _BARE), goals)


async def _receive(run: Run) -> float:
    """Receive the bytes of the answer, over the warm connection."""
    with timed() as took:
        await run.wire.receive(ALL_ENTITIES)
    return took.ms


async def _read_image(run: Run, count: int, *, cold: bool) -> float:
    """Receive the bytes, and make of them what the service does."""
    image = DescribedAll()

    async def read() -> None:
        payload = await run.wire.receive(ALL_ENTITIES)
        answer, _ = await image.read(payload, VERSION)
        if answer.quotas is None or len(answer.quotas) != count:
            raise BenchmarkError("the image has not every entity")

    if not cold:
        await read()
    with timed() as took:
        await read()
    return took.ms


async def _peer_describe(peer: Worker, count: int) -> float:
    ms, entities = read_result(peer.name, await peer.ask(DESCRIBE))
    if entities != count:
        raise BenchmarkError(f"{peer.name} has described {entities} of {count} entities")
    return ms


class _GetAll:
    """``GET /quotas``; before each call one entity is changed where that is wanted.

    Attributes:
        first_byte_ms: When each answer began, in milliseconds after the request.
    """

    def __init__(
        self, run: Run, stored: Entities, *, max_age_ms: int = 0, changes: bool = False
    ) -> None:
        path = f"/quotas?max_age_ms={max_age_ms}"
        self._request = prepared("GET", path, token=run.stack.token)
        self._run = run
        self._count = stored.count
        self._changed = Entities(stored.arm) if changes else None
        self._value = 1
        self.first_byte_ms: list[float] = []

    async def __call__(self) -> float:
        service = self._run.service
        await service.warm_up()
        await service.exchange(self._request)
        if self._changed is not None:
            self._value += 1
            await self._run.wire.store(self._changed, self._value)
        begun = time.perf_counter()
        ms = await _get(service, self._request, self._count)
        self.first_byte_ms.append((service.first_byte_at - begun) * 1000)
        return ms


_RECEIVED = "received, not decoded"
_COLD = "image, nothing read before"
_SAME = "image, nothing has changed"
_GET_CHANGED = "`GET /quotas`, one entity has changed"
_GET_SAME = "`GET /quotas`, nothing has changed"
_ANEW_LIMIT = 2.0
_SAME_LIMIT = 1.1
_FIRST_BYTE_LIMIT = 0.5


async def measure_describe_all(run: Run, stored: Entities) -> list[Section]:
    """Measure describes of all entities, which are those stored and no others."""
    count = stored.count
    rounds = run.plan.describe_all_rounds(count)
    run.progress.say(f"describing all of {count:,} entities: {rounds} rounds")
    gets = {
        _GET_CHANGED: _GetAll(run, stored, changes=True),
        _GET_SAME: _GetAll(run, stored),
        _FROM_IMAGE: _GetAll(run, stored, max_age_ms=_OLDEST_MS),
    }
    ours = (
        Arm(_RECEIVED, partial(_receive, run)),
        Arm(_COLD, partial(_read_image, run, count, cold=True)),
        Arm(_SAME, partial(_read_image, run, count, cold=False)),
        *(Arm(name, get) for name, get in gets.items()),
    )
    size = len(await run.wire.receive(ALL_ENTITIES))
    with run.peers.warm(run.stack.bootstrap_servers) as peers:
        arms = [*ours, *(Arm(peer.name, partial(_peer_describe, peer, count)) for peer in peers)]
        warm_up = min(run.plan.warm_up, 2)
        measures = await interleaved(arms, rounds=rounds, warm_up=warm_up)
    first_bytes = {name: Measure(get.first_byte_ms[-rounds:]) for name, get in gets.items()}
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
    goals = _goals(count, measures, first_bytes) if count >= run.plan.large else ()
    columns = (*LATENCY_COLUMNS, "x received", "first byte p50 ms")
    title = f"Describe all of {count:,} entities"
    section = Section(title, note, columns, rows, goals, measures)
    return [section, await _large_describes(run, stored)] if goals else [section]


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
