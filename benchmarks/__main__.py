"""``python -m benchmarks``: run all of them and write docs/benchmarks.md."""

import argparse
import shlex
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from app.localdev.local_directory import LocalDevError
from benchmarks.altering import measure_alters, measure_shell
from benchmarks.competitors.installing import INSTALLERS, installed
from benchmarks.competitors.peers import Peers
from benchmarks.describing import measure_describe_all, measure_describes
from benchmarks.end_to_end import measure_end_to_end
from benchmarks.measures import BenchmarkError, Section
from benchmarks.report import draw, environment, page
from benchmarks.resolving import measure_renewals, measure_resolves
from benchmarks.run import FULL, QUICK, Plan, Run, opened
from benchmarks.stack import Progress, Stack, running_stack
from benchmarks.wire import Entities

_PAGE = Path("docs/benchmarks.md")


async def _describe_all(run: Run) -> list[Section]:
    sections = []
    for count in run.plan.everything:
        stored = Entities("all", count)
        await run.store(stored)
        sections += await measure_describe_all(run, stored)
    return sections


async def _renew(run: Run) -> list[Section]:
    sections = []
    for count in run.plan.everything:
        if count >= run.plan.large:
            stored = Entities("all", count)
            await run.store(stored)
            sections.append(await measure_renewals(run, stored))
    return sections


SECTIONS: Mapping[str, Callable[[Run], Awaitable[list[Section]]]] = {
    "describe": measure_describes,
    "shell": measure_shell,
    "alter": measure_alters,
    "resolve": measure_resolves,
    "end-to-end": measure_end_to_end,
    "describe-all": _describe_all,
    "renew": _renew,
}
"""In the order of the page; each finds a quiet cluster with the stored entities and no others."""

WITH_PEERS = ("shell", "alter", "describe-all")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 where something did not work."""
    options = _parser().parse_args(argv)
    plan = QUICK if options.quick else FULL
    if options.describe_all:
        plan = replace(plan, everything=tuple(options.describe_all))
    try:
        where, sections = run(plan, options.only or SECTIONS, options.peer or INSTALLERS)
    except (BenchmarkError, LocalDevError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    arguments = sys.argv[1:] if argv is None else argv
    command = shlex.join(["python", "-m", "benchmarks", *arguments]) if arguments else "make bench"
    where = [("Command", f"`{command}`"), *where]
    file = options.page or (None if options.quick or options.only else _PAGE)
    if file is None:
        print(page(where, sections))
    else:
        _write(file, where, sections)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds, printed and not written"
    )
    parser.add_argument(
        "--only", choices=SECTIONS, action="append", help="these sections, printed and not written"
    )
    parser.add_argument(
        "--peer", choices=INSTALLERS, action="append", help="of the other clients these only"
    )
    parser.add_argument(
        "--describe-all",
        type=int,
        action="append",
        metavar="N",
        help="describe so many entities at once; may come more than once; 10000 without it",
    )
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help=f"write the page there, whatever was measured; {_PAGE} without it",
    )
    return parser


def run(
    plan: Plan, wanted: Collection[str], wanted_peers: Collection[str]
) -> tuple[list[tuple[str, str]], Sequence[Section]]:
    """Start everything, measure, and stop it.

    Returns:
        The environment of the run, and what was found.

    Raises:
        BenchmarkError: Something did not do what is measured.
        LocalDevError: Something did not start.
    """
    progress = Progress()
    peers = Peers()
    if set(wanted) & set(WITH_PEERS):
        progress.say("installing the other clients")
        peers = installed(progress, wanted_peers, INSTALLERS)
    with running_stack(progress) as stack:
        where = environment(stack.database_url, peers)
        sections = uvloop.run(_measured(stack, plan, wanted, peers, progress))
        progress.say("stopping everything")
    return where, sections


async def _measured(
    stack: Stack, plan: Plan, wanted: Collection[str], peers: Peers, progress: Progress
) -> Sequence[Section]:
    sections: list[Section] = []
    async with opened(stack, plan, peers, progress) as run:
        for name, measure in SECTIONS.items():
            if name in wanted:
                await run.store(run.stored)
                sections += await measure(run)
    return sections


def _write(file: Path, where: Sequence[tuple[str, str]], sections: Sequence[Section]) -> None:
    """Write the page, and its pictures into a folder of its name beside it."""
    folder = file.with_suffix("")
    draw(sections, folder)
    text = page(where, sections, folder.name)
    file.write_text(text, encoding="utf-8")
    print(text)
    print(f"bench: wrote {file}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
