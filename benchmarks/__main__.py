"""``python -m benchmarks``: run all of them and write docs/benchmarks.md."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import uvloop

from app.localdev.errors import LocalDevError
from benchmarks.errors import BenchmarkError
from benchmarks.parts import PARTS, measured
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.progress import Progress
from benchmarks.report import page
from benchmarks.stack import running_stack
from benchmarks.surroundings import surroundings

_PAGE = Path("docs/benchmarks.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 where something did not work."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds, printed and not written"
    )
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="these parts, printed and not written"
    )
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        text = run(QUICK if options.quick else FULL, options.only or PARTS)
    except (BenchmarkError, LocalDevError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(text)
    if not options.quick and not options.only:
        _PAGE.write_text(text, encoding="utf-8")
        print(f"bench: wrote {_PAGE}", file=sys.stderr)
    return 0


def run(plan: Plan, wanted: Collection[str] = PARTS) -> str:
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
        parts = uvloop.run(measured(stack, plan, progress, wanted))
        progress.say("stopping everything")
    return page(where, parts)


if __name__ == "__main__":
    sys.exit(main())
