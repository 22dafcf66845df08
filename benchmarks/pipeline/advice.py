"""How long advice takes in a session that is warm: each job as people run it, from tables of a run.

``python -m benchmarks.pipeline.advice LAKE --quotas DIR`` runs `rightsize`, `stale` and
`overcommit` in turn, after a round that is thrown away. A job lists folders, reads, judges and
writes; the start of Spark is left out.
"""

import argparse
import contextlib
import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from app.pipeline.main import main as run_job
from app.pipeline.spark import spark_session
from benchmarks.measures import grid
from benchmarks.pipeline.rounds import run_in_turn, times_of

_CORES: Final = 2
_CAPACITY: Final = """broker_id,nic_in_bps,nic_out_bps,threads,replication_factor_avg
-1,125000000,125000000,16,3
"""


def main() -> int:
    """Run the jobs in turn, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.advice")
    parser.add_argument("lake", type=Path)
    parser.add_argument("--quotas", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="after the first")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        spark_session("benchmark", master=f"local[{_CORES}]", settings={}),
    ):
        capacity = Path(folder) / "capacity.csv"
        capacity.write_text(_CAPACITY)
        same = ["--input", f"{options.lake}", "--out", f"{folder}/out"]
        jobs: Mapping[str, Callable[[], None]] = {
            "rightsize": lambda: _run("rightsize", *same),
            "stale": lambda: _run("stale", *same, "--quotas", f"{options.quotas}"),
            "overcommit": lambda: _run("overcommit", *same, "--capacity", f"{capacity}"),
        }
        seconds, _ = run_in_turn(jobs, options.rounds)
    rows = [[f"`{name}`", *times_of(each)] for name, each in seconds.items()]
    print(grid(("job", "median s", "least s", "most s"), rows))
    return 0


def _run(*arguments: str) -> None:
    """Run a job, whose report nobody reads.

    Raises:
        SystemExit: It fails.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        code = run_job(arguments)
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    raise SystemExit(main())
