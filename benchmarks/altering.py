"""``POST /quotas/alterations`` against the bare alter, kafka-configs and other clients."""

from collections.abc import Mapping, Sequence

from benchmarks.alter_arms import BareAlter, PeerAlter, PostAlter
from benchmarks.competitors.process import WarmPeer
from benchmarks.measures import Measure
from benchmarks.plan import Plan
from benchmarks.process_arms import ToolAlter
from benchmarks.rounds import Arm, interleaved
from benchmarks.session import Session
from benchmarks.tables import LATENCY_COLUMNS, Goal, Section, Table, latency_cells, show
from benchmarks.workload import KEYS, Entities

_BARE = "bare alter"
_POST = "`POST`, `wait: none`"
_READABLE = "`POST`, `wait: readable`"
_TOOL = "`kafka-configs`, one process"
_LIMIT = 2.0
_LARGEST_LIMIT = 2.5
_LOOP_LIMIT = 3000.0
_COLUMNS = (*LATENCY_COLUMNS, "x bare", "x `POST`")


async def measure_single_alters(session: Session, plan: Plan) -> tuple[Section, Measure]:
    """Measure alterations of one entity; return the figures of kafka-configs too."""
    arms = (
        BareAlter(_BARE, session, Entities("bare-one")),
        PostAlter(_POST, session, Entities("post-one"), wait="none"),
        PostAlter(_READABLE, session, Entities("readable-one"), wait="readable"),
        ToolAlter(_TOOL, session, Entities("tool"), every=plan.single_alters // plan.tool_calls),
    )
    measures = await interleaved(arms, rounds=plan.single_alters, warm_up=plan.warm_up)
    note = (
        "2 keys, all checked, authorized and recorded in Postgres (fsync on) before and after by "
        "the service; the bare alter has none of that. A broker waits about 25 ms before it "
        "writes (`controller.quorum.append.linger.ms`): nearly all of the bare time."
    )
    table = Table("Alter 1 entity", note, _COLUMNS, _rows(measures))
    return Section(table, measures=measures), measures[_TOOL]


async def measure_batch_alters(
    session: Session, plan: Plan, tool: Measure, peers: Sequence[WarmPeer]
) -> Section:
    """Measure alterations of many entities in one request, against a loop of kafka-configs."""
    count = plan.entities
    arms: list[Arm] = [
        BareAlter(_BARE, session, Entities("bare-many", count)),
        PostAlter(_POST, session, Entities("post-many", count), wait="none"),
    ]
    arms += [
        PeerAlter(session, Entities(f"peer-{number}-many", count), peer)
        for number, peer in enumerate(peers)
    ]
    measures = await interleaved(arms, rounds=plan.batch_alters, warm_up=plan.warm_up)
    loop = tool.times(count)
    rows = [*_rows(measures), _extrapolated(loop, count, measures)]
    note = (
        f"2 keys each, one request, in the service every one an audit row before and after. {_WARM}"
    )
    post = measures[_POST]
    what = f"`POST` of {count:,} entities with audit"
    goals = (
        Goal(f"{what} / bare alter", _LIMIT, post.ratio_to(measures[_BARE])),
        Goal(
            f"{count:,} x `kafka-configs` (extrapolated) / {what}",
            _LOOP_LIMIT,
            loop.median / post.median,
            at_most=False,
        ),
    )
    table = Table(f"Alter {count:,} entities", note, _COLUMNS, rows)
    drawn = {**measures, f"`kafka-configs` x {count:,}, extrapolated": loop}
    return Section(table, goals, drawn)


_WARM = (
    "The other clients are long-lived processes that time their own calls, from their library's "
    "objects to their library's objects."
)


async def measure_largest_alters(session: Session, plan: Plan) -> Section:
    """Measure alterations of as many entities as one request may have."""
    count, keys = plan.largest, KEYS[:1]
    arms = (
        BareAlter(_BARE, session, Entities("bare-most", count, keys)),
        PostAlter(_POST, session, Entities("post-most", count, keys), wait="none"),
    )
    measures = await interleaved(arms, rounds=plan.largest_alters, warm_up=plan.warm_up)
    note = (
        "1 key each, one request, in the service every one an audit row before and after. A "
        "controller takes at most 10,000 changes in a request."
    )
    ratio = measures[_POST].ratio_to(measures[_BARE])
    goal = Goal(f"`POST` of {count:,} entities with audit / bare alter", _LARGEST_LIMIT, ratio)
    table = Table(f"Alter {count:,} entities", note, _COLUMNS, _rows(measures))
    return Section(table, (goal,), measures)


def _rows(measures: Mapping[str, Measure]) -> list[list[str]]:
    return [
        [
            *latency_cells(name, measure),
            show(measure.ratio_to(measures[_BARE])),
            show(measure.ratio_to(measures[_POST])),
        ]
        for name, measure in measures.items()
    ]


def _extrapolated(loop: Measure, calls: int, measures: Mapping[str, Measure]) -> list[str]:
    name = f"`kafka-configs` in a loop: **extrapolated**, {calls:,} times the process above"
    ratios = (loop.median / measures[other].median for other in (_BARE, _POST))
    return [*latency_cells(name, loop), *(show(ratio) for ratio in ratios)]
