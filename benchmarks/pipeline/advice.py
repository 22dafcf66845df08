"""How long advice takes in a session that is warm: each job as people run it, from tables of a run.

``python -m benchmarks.pipeline.advice LAKE --quotas DIR`` runs `rightsize`, `stale` and
`overcommit` in turn, after a round that is thrown away. A job lists folders, reads, judges and
writes; the start of Spark is left out.
"""

import argparse
import contextlib
import io
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from app.pipeline.main import main as run_job
from app.pipeline.spark import spark_session

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
        jobs: Mapping[str, Sequence[str]] = {
            "rightsize": same,
            "stale": [*same, "--quotas", f"{options.quotas}"],
            "overcommit": [*same, "--capacity", f"{capacity}"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(1 + options.rounds):
            for name, arguments in jobs.items():
                seconds[name].append(_seconds(name, arguments))
    print("| job | median s | least s | most s |\n| --- | --- | --- | --- |")
    for name, each in seconds.items():
        figures = (statistics.median(each[1:]), min(each[1:]), max(each[1:]))
        print(f"| `{name}` | {' | '.join(f'{figure:.1f}' for figure in figures)} |")
    return 0


def _seconds(job: str, arguments: Sequence[str]) -> float:
    """Run a job, and return how long it says that it took.

    Raises:
        SystemExit: It fails.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run_job([job, "--json", *arguments])
    if code:
        raise SystemExit(code)
    return float(json.loads(printed.getvalue())["seconds"])


if __name__ == "__main__":
    raise SystemExit(main())
