"""Measure ``resolve`` beside eight joins and DuckDB, then the whole chain, in one run."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from app.pipeline.spark import spark_session
from benchmarks.pipeline import duckdb_arm, spark_arms
from benchmarks.pipeline.commands import made_up, run_chain
from benchmarks.pipeline.memory import PeakMemory
from benchmarks.pipeline.report import DUCKDB, JOINS, LOOK_UPS, Figures, page, write_page
from benchmarks.pipeline.spark_arms import Answer

_THREADS = 2
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks-pipeline.md"


def main() -> int:
    """Run everything and write the page."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as directory:
        folder = options.data or Path(directory)
        data = made_up(folder, options.observations, options.entities)
        figures = Figures(options.observations, options.entities)
        _measure_arms(figures, data, options.rounds)
        for number in range(options.chains):
            _say(f"chain {number + 1} of {options.chains}")
            figures.chain.append(run_chain(data, Path(directory) / f"chain-{number}"))
    write_page(figures, options.page)
    print(page(figures))
    return 0


def _measure_arms(figures: Figures, data: Path, rounds: int) -> None:
    engine = duckdb_arm.connected(_THREADS)
    with (
        spark_session("bench-pipeline", master=f"local[{_THREADS}]") as session,
        PeakMemory(os.getpid()) as memory,
    ):
        arms: Mapping[str, Callable[[], Answer]] = {
            LOOK_UPS: lambda: spark_arms.three_look_ups(session, data),
            JOINS: lambda: spark_arms.eight_joins(session, data),
            DUCKDB: lambda: duckdb_arm.three_look_ups(engine, data),
        }
        for number in range(rounds + 1):
            answers = {arm: _timed(figures, arm, find, number) for arm, find in arms.items()}
            _require_equal(answers)
    engine.close()
    figures.peaks = memory.peaks


def _timed(figures: Figures, arm: str, find: Callable[[], Answer], number: int) -> Answer:
    begun = time.monotonic()
    answer = find()
    took = time.monotonic() - begun
    _say(f"round {number}: {arm}: {took:.2f} s")
    if number > 0:
        figures.seconds.setdefault(arm, []).append(took)
    return answer


def _require_equal(answers: Mapping[str, Answer]) -> None:
    expected = answers[LOOK_UPS]
    for arm, answer in answers.items():
        if answer != expected:
            message = f"{arm} answers otherwise than {LOOK_UPS}: {answer} and {expected}"
            raise RuntimeError(message)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench-pipeline", description=__doc__)
    parser.add_argument("--observations", type=int, default=20_000_000, metavar="N")
    parser.add_argument("--entities", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="after the first")
    parser.add_argument("--chains", type=int, default=1, metavar="N", help="runs of the chain")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep what synth wrote there")
    parser.add_argument("--page", type=Path, default=_PAGE, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
