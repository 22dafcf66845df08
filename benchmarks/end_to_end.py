"""An alteration end to end, from request to answer, against the bare wire call."""

import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.clients import BareClient, Client, PostClient, Window, busy, until_readable
from benchmarks.http_connection import open_http
from benchmarks.measures import Measure, percentile
from benchmarks.phases import means_ms, phase_totals
from benchmarks.plan import Plan
from benchmarks.session import Session
from benchmarks.tables import Goal, Section, Table, show
from benchmarks.wire import WireQuotas

_CLIENTS = (1, 8, 32, 128)
_TIMES_BARE = {32: 20.0, 128: 60.0}
_CROWD = 100
_WINDOWS_OF_A_CROWD = 4
_LIMIT_MS = 5.0
_BARE = "bare alter"
_POST = "`POST`, `wait: none`"
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

    clients: Sequence[Client]
    done: list[Window] = field(default_factory=list)

    @property
    def rate(self) -> Measure:
        return Measure([len(item.took_ms) / item.seconds for item in self.done])

    @property
    def latency(self) -> Measure:
        return Measure([statistics.median(item.took_ms) for item in self.done])

    @property
    def ordered_ms(self) -> list[float]:
        return sorted(took_ms for item in self.done for took_ms in item.took_ms)

    def row(self, arm: str, bare: "_Windows") -> list[str]:
        ordered = self.ordered_ms
        return [
            str(len(self.clients)),
            arm,
            str(self.rate.n),
            f"{len(ordered):,}",
            show(self.rate.median),
            show(self.latency.median),
            show(percentile(ordered, 0.99)),
            show(self.latency.excess_over(bare.latency)),
            show(self.rate.ratio_to(bare.rate)),
        ]


@dataclass(frozen=True)
class _Found:
    """Both arms with one number of clients, and the service's mean milliseconds by phase."""

    bare: _Windows
    post: _Windows
    means_ms: Mapping[str, float]


async def measure_end_to_end(session: Session, plan: Plan) -> Section:
    """Measure alterations of one entity by several numbers of clients."""
    found = [await _measure(session, plan, number) for number in _CLIENTS]
    rows = []
    for result in found:
        rows += [result.bare.row(_BARE, result.bare), result.post.row(_POST, result.bare)]
    alone = found[0]
    goal = Goal(
        "`POST` of 1 entity, 1 client, `wait: none`, at the median: ms more than a bare alter",
        _LIMIT_MS,
        alone.post.latency.excess_over(alone.bare.latency),
    )
    rates = [
        Goal(
            f"alterations of {number} clients / of {number} bare clients, a second",
            _TIMES_BARE[number],
            result.post.rate.ratio_to(result.bare.rate),
            at_most=False,
        )
        for number, result in zip(_CLIENTS, found, strict=True)
        if number in _TIMES_BARE
    ]
    repeats = sum(client.repeats for result in found for client in result.post.clients)
    note = f"{_note(plan, alone.means_ms)} Requests repeated after a 503: {repeats}."
    return Section(Table("One alteration end to end", note, _COLUMNS, rows), (goal, *rates))


async def _measure(session: Session, plan: Plan, number: int) -> _Found:
    before = await phase_totals(session.stack.service_port)
    async with _connected(session, number) as (bare, post):
        for window in range(-1, _windows(plan, number)):
            for arm in (bare, post) if window % 2 else (post, bare):
                done = await busy(arm.clients, plan.end_to_end_window_s)
                await until_readable(arm.clients, session.wire)
                if window >= 0:
                    arm.done.append(done)
    after = await phase_totals(session.stack.service_port)
    return _Found(bare, post, means_ms(before, after))


def _windows(plan: Plan, number: int) -> int:
    """Return how many windows: those of a crowd are long, as bare clients stand in line."""
    return (
        min(plan.end_to_end_windows, _WINDOWS_OF_A_CROWD)
        if number > _CROWD
        else plan.end_to_end_windows
    )


@asynccontextmanager
async def _connected(session: Session, number: int) -> AsyncIterator[tuple[_Windows, _Windows]]:
    stack = session.stack
    bare: list[Client] = []
    post: list[Client] = []
    try:
        for each in range(number):
            wire = await WireQuotas.open(stack.bootstrap_servers)
            bare.append(BareClient(f"end-to-end-bare-{each}", wire))
            service = await open_http(stack.service_port)
            post.append(PostClient(f"end-to-end-post-{each}", service, stack.token))
        yield _Windows(bare), _Windows(post)
    finally:
        for client in (*bare, *post):
            client.close()


def _note(plan: Plan, phases: Mapping[str, float]) -> str:
    sections = ", ".join(
        f"{name} {show(phases[phase])}" for phase, name in _PHASES.items() if phase in phases
    )
    return (
        "Each client alters 2 keys of one entity after the other, entities of its own, on a "
        "connection of its own: the bare one to the broker, the other to the service, where each "
        "alteration is authenticated, authorized, judged, recorded before (intent) and after "
        f"(outcome) with fsync, and logged. n windows of {plan.end_to_end_window_s:g} s, in turns; "
        "rates and p50 are medians over the windows, p99 is over all alterations. With 1 client "
        f"the service's own mean times were, in ms: {sections}."
    )
