"""``POST /quotas/alterations`` against the bare alter and against kafka-configs."""

from collections.abc import Mapping

from benchmarks.alter_arms import BareAlter, PostAlter, ToolAlter
from benchmarks.measures import Measure
from benchmarks.plan import Plan
from benchmarks.rounds import interleaved
from benchmarks.session import Session
from benchmarks.tables import LATENCY_COLUMNS, Goal, Part, Table, latency_cells, shown
from benchmarks.workload import Entities

_BARE = "bare alter"
_POST = "`POST`, `wait: none`"
_READABLE = "`POST`, `wait: readable`"
_TOOL = "`kafka-configs`, one process"
_LIMIT = 3.0
_COLUMNS = (*LATENCY_COLUMNS, "x bare", "x `POST`")


async def measure_single_alters(session: Session, plan: Plan) -> tuple[Part, Measure]:
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
    return Part(table), measures[_TOOL]


async def measure_batch_alters(
    session: Session, plan: Plan, stored: Entities, tool: Measure
) -> Part:
    """Measure alterations of many entities in one request, against a loop of kafka-configs."""
    bare = Entities("bare-many", stored.count)
    arms = (
        BareAlter(_BARE, session, bare),
        PostAlter(_POST, session, stored, wait="none"),
    )
    measures = await interleaved(arms, rounds=plan.batch_alters, warm_up=plan.warm_up)
    rows = _rows(measures)
    rows.append(_extrapolated(tool.times(stored.count), stored.count, measures))
    note = (
        "2 keys each, one request, every one an audit row before and after. "
        f"{2 * stored.count:,} entities are stored: each arm has its own."
    )
    ratio = measures[_POST].ratio_to(measures[_BARE])
    goal = Goal(f"`POST` of {stored.count:,} entities with audit / bare alter", _LIMIT, ratio)
    table = Table(f"Alter {stored.count:,} entities", note, _COLUMNS, rows)
    return Part(table, (goal,))


def _rows(measures: Mapping[str, Measure]) -> list[list[str]]:
    return [
        [
            *latency_cells(name, measure),
            shown(measure.ratio_to(measures[_BARE])),
            shown(measure.ratio_to(measures[_POST])),
        ]
        for name, measure in measures.items()
    ]


def _extrapolated(loop: Measure, calls: int, measures: Mapping[str, Measure]) -> list[str]:
    name = f"`kafka-configs` in a loop: **extrapolated**, {calls:,} times the process above"
    ratios = (loop.median / measures[other].median for other in (_BARE, _POST))
    return [*latency_cells(name, loop), *(shown(ratio) for ratio in ratios)]
