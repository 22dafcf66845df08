"""``python -m benchmarks.load_test``: more and more entities, until something breaks."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app.localdev.local_directory import LocalDevError
from benchmarks.competitors.peer import Peers
from benchmarks.environment import environment
from benchmarks.errors import BenchmarkError
from benchmarks.load_test.asking import Asking
from benchmarks.load_test.report import growth_page
from benchmarks.load_test.steps import Grown, grow
from benchmarks.progress import Progress
from benchmarks.stack import running_stack

_SIZES = (10_000, 100_000, 300_000, 1_000_000)
_HEAP = "6g"
_PAGE = Path("docs/benchmarks-growth.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 where not even loading worked."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    progress = Progress()
    steps: list[Grown] = []
    failure = ""
    with (
        tempfile.TemporaryDirectory(prefix="growth-") as folder,
        running_stack(Path(folder), progress, heap=options.heap) as stack,
        Asking(stack) as asking,
    ):
        where = environment(stack.database_url, Peers(), heap=options.heap)
        try:
            for wanted in sorted(options.entities or _SIZES):
                present = steps[-1].entities if steps else 0
                steps.append(grow(stack, asking, present, wanted, progress))
        except (BenchmarkError, LocalDevError) as error:
            failure = str(error)
    page = growth_page(where, steps, failure)
    print(page)
    if options.page:
        options.page.write_text(page, encoding="utf-8")
    return 1 if failure else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_test", description=__doc__)
    parser.add_argument(
        "--entities",
        type=int,
        action="append",
        metavar="N",
        help=f"look at so many; may come more than once; {', '.join(map(str, _SIZES))} without it",
    )
    parser.add_argument("--heap", default=_HEAP, help=f"of the broker; {_HEAP} without it")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"write it there, as {_PAGE}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
