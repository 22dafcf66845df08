"""``python -m benchmarks``: run all of them and write docs/benchmarks.md."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from app.localdev.errors import LocalDevError
from benchmarks.altering import measure_batch_alters, measure_single_alters
from benchmarks.describing import measure_describes
from benchmarks.errors import BenchmarkError
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.progress import Progress
from benchmarks.report import page
from benchmarks.resolving import measure_resolves
from benchmarks.session import opened
from benchmarks.stack import Stack, running_stack
from benchmarks.surroundings import surroundings
from benchmarks.tables import Part
from benchmarks.workload import KEYS, Entities

_PAGE = Path("docs/benchmarks.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 where something did not work."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds, printed and not written"
    )
    quick = parser.parse_args(argv).quick
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        text = run(QUICK if quick else FULL)
    except (BenchmarkError, LocalDevError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(text)
    if not quick:
        _PAGE.write_text(text, encoding="utf-8")
        print(f"bench: wrote {_PAGE}", file=sys.stderr)
    return 0


def run(plan: Plan) -> str:
    """Start everything in a folder that is forgotten afterwards, measure, return the page.

    Raises:
        BenchmarkError: Something did not do what is measured.
        LocalDevError: Something did not start.
    """
    progress = Progress()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        running_stack(Path(folder), progress) as stack,
    ):
        where = surroundings(stack.database_url)
        parts = uvloop.run(_measure(stack, plan, progress))
        progress.say("stopping everything")
    return page(where, parts)


async def _measure(stack: Stack, plan: Plan, progress: Progress) -> list[Part]:
    stored = Entities("bench", plan.entities)
    async with opened(stack) as session:
        progress.say(f"storing {plan.entities:,} entities")
        await session.wire.alter(stored.alterations(1))
        await session.wire.until_shown(stored.exact(plan.entities - 1), KEYS[-1], 1)
        progress.say(f"describing: {plan.describes} rounds")
        describes = await measure_describes(session, plan, stored)
        progress.say(f"altering 1 entity: {plan.single_alters} rounds")
        singles, tool = await measure_single_alters(session, plan)
        progress.say(f"altering {plan.entities:,} entities: {plan.batch_alters} rounds")
        batches = await measure_batch_alters(session, plan, stored, tool)
        progress.say(f"resolving: {plan.windows} windows of each kind")
        resolves = await measure_resolves(stack, plan, stored)
    return [describes, singles, batches, resolves]


if __name__ == "__main__":
    sys.exit(main())
