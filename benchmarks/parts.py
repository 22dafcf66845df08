"""The parts of a run: each finds a quiet cluster and leaves one."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.altering import measure_batch_alters, measure_single_alters
from benchmarks.describing import measure_describes
from benchmarks.lives import measure_lives
from benchmarks.plan import Plan
from benchmarks.progress import Progress
from benchmarks.resolving import measure_resolves
from benchmarks.session import Session, opened
from benchmarks.stack import Stack
from benchmarks.tables import Part
from benchmarks.workload import KEYS, Entities


@dataclass(frozen=True)
class _Run:
    session: Session
    plan: Plan
    stored: Entities
    progress: Progress


async def _describe(run: _Run) -> list[Part]:
    run.progress.say(f"describing: {run.plan.describes} rounds")
    return [await measure_describes(run.session, run.plan, run.stored)]


async def _alter(run: _Run) -> list[Part]:
    run.progress.say(f"altering 1 entity: {run.plan.single_alters} rounds")
    singles, tool = await measure_single_alters(run.session, run.plan)
    rounds = run.plan.batch_alters
    run.progress.say(f"altering {run.stored.count:,} entities: {rounds} rounds")
    return [singles, await measure_batch_alters(run.session, run.plan, run.stored, tool)]


async def _resolve(run: _Run) -> list[Part]:
    run.progress.say(f"resolving: {run.plan.windows} windows of each kind")
    return [await measure_resolves(run.session.stack, run.plan, run.stored)]


async def _life(run: _Run) -> list[Part]:
    run.progress.say(f"whole lives: {run.plan.life_windows} windows of each kind")
    return [await measure_lives(run.session, run.plan)]


PARTS: Mapping[str, Callable[[_Run], Awaitable[list[Part]]]] = {
    "describe": _describe,
    "alter": _alter,
    "resolve": _resolve,
    "life": _life,
}
"""In the order of the page; the last one stores entities that no other part counts on."""


async def measured(
    stack: Stack, plan: Plan, progress: Progress, wanted: Collection[str]
) -> Sequence[Part]:
    """Store what is described and measure the wanted parts."""
    stored = Entities("bench", plan.entities)
    parts: list[Part] = []
    async with opened(stack) as session:
        progress.say(f"storing {plan.entities:,} entities")
        await session.wire.alter(stored.alterations(1))
        await session.wire.until_shown(stored.exact(plan.entities - 1), KEYS[-1], 1)
        run = _Run(session, plan, stored, progress)
        for name, measure in PARTS.items():
            if name in wanted:
                parts += await measure(run)
    return parts
