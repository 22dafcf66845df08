"""The sections of a run: each finds a quiet cluster with the stored entities and no others."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.altering import measure_batch_alters, measure_largest_alters, measure_single_alters
from benchmarks.competitors.peer import Peers
from benchmarks.competitors.process import warm
from benchmarks.describe_all import measure_describe_all
from benchmarks.describing import measure_describes, measure_large_describes
from benchmarks.end_to_end import measure_end_to_end
from benchmarks.image_refresh import measure_image_refresh
from benchmarks.plan import Plan
from benchmarks.progress import Progress
from benchmarks.resolving import measure_resolves
from benchmarks.seed import keep_only, store
from benchmarks.session import Session, opened
from benchmarks.shell import measure_shell
from benchmarks.stack import Stack
from benchmarks.tables import Section
from benchmarks.visibility import measure_visibility
from benchmarks.workload import Entities


@dataclass(frozen=True)
class _Run:
    session: Session
    plan: Plan
    stored: Entities
    progress: Progress
    peers: Peers


async def _describe(run: _Run) -> list[Section]:
    run.progress.say(f"describing: {run.plan.describes} rounds")
    return [await measure_describes(run.session, run.plan, run.stored)]


async def _shell(run: _Run) -> list[Section]:
    run.progress.say(f"altering from a shell: {run.plan.shell_alters} rounds")
    return [await measure_shell(run.session, run.plan, run.peers)]


async def _alter(run: _Run) -> list[Section]:
    plan, session = run.plan, run.session
    run.progress.say(f"altering 1 entity: {plan.single_alters} rounds")
    singles, tool = await measure_single_alters(session, plan)
    run.progress.say(f"altering {plan.entities:,} entities: {plan.batch_alters} rounds")
    with warm(run.peers, session.stack.bootstrap_servers) as peers:
        batches = await measure_batch_alters(session, plan, tool, peers)
    run.progress.say(f"altering {plan.largest:,} entities: {plan.largest_alters} rounds")
    return [singles, batches, await measure_largest_alters(session, plan)]


async def _resolve(run: _Run) -> list[Section]:
    run.progress.say(f"resolving: {run.plan.windows} windows of each kind")
    return [await measure_resolves(run.session.stack, run.plan, run.stored)]


async def _end_to_end(run: _Run) -> list[Section]:
    run.progress.say(f"end to end: {run.plan.end_to_end_windows} windows of each kind")
    return [await measure_end_to_end(run.session, run.plan)]


async def _everything(run: _Run) -> list[Section]:
    sections = []
    for count in run.plan.everything:
        stored = Entities("all", count)
        run.progress.say(f"storing {count:,} entities instead")
        await keep_only(run.session.wire, stored)
        await store(run.session.wire, stored, 1)
        rounds = run.plan.describe_all_rounds(count)
        run.progress.say(f"describing all of {count:,} entities: {rounds} rounds")
        with warm(run.peers, run.session.stack.bootstrap_servers) as peers:
            sections.append(await measure_describe_all(run.session, run.plan, stored, peers))
        if count >= run.plan.large:
            sections += await _large(run, stored)
    return sections


async def _large(run: _Run, stored: Entities) -> list[Section]:
    plan = run.plan
    run.progress.say(f"describing one of {stored.count:,}: {plan.large_describes} rounds")
    exact = await measure_large_describes(run.session, plan, stored)
    run.progress.say(f"altering {plan.seen_alters} of {stored.count:,}: {plan.seen_rounds} rounds")
    return [exact, await measure_visibility(run.session, plan, stored)]


async def _renew(run: _Run) -> list[Section]:
    plan, sections = run.plan, []
    for count in plan.everything:
        if count >= plan.large:
            stored = Entities("all", count)
            run.progress.say(f"storing {count:,} entities instead")
            await keep_only(run.session.wire, stored)
            await store(run.session.wire, stored, 1)
            run.progress.say(
                f"resolving from an image that is renewed: {plan.paced_windows} rounds"
            )
            sections.append(await measure_image_refresh(run.session, plan, stored))
    return sections


SECTIONS: Mapping[str, Callable[[_Run], Awaitable[list[Section]]]] = {
    "describe": _describe,
    "shell": _shell,
    "alter": _alter,
    "resolve": _resolve,
    "end-to-end": _end_to_end,
    "describe-all": _everything,
    "renew": _renew,
}
"""In the order of the page."""

WITH_PEERS = ("shell", "alter", "describe-all")


async def measured(
    stack: Stack, plan: Plan, progress: Progress, wanted: Collection[str], peers: Peers
) -> Sequence[Section]:
    """Store what is described and measure the wanted sections."""
    stored = Entities("bench", plan.entities)
    sections: list[Section] = []
    async with opened(stack) as session:
        progress.say(f"storing {plan.entities:,} entities")
        run = _Run(session, plan, stored, progress, peers)
        for name, measure in SECTIONS.items():
            if name in wanted:
                await keep_only(session.wire, stored)
                await store(session.wire, stored, 1)
                sections += await measure(run)
    return sections
