"""The page with the figures."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.pipeline.commands import Done

LOOK_UPS: Final = "Spark, three look-ups (`resolve`)"
JOINS: Final = "Spark, eight broadcast left joins"
DUCKDB: Final = "DuckDB, three look-ups"

_TIMES_JOINS: Final = 3.0
_TIMES_DUCKDB: Final = 2.5
_CHAIN_S: Final = 75.0
_GOAL_ROWS: Final = 20_000_000
_PACKAGES: Final = ("pyspark", "pyarrow", "duckdb")


@dataclass
class Figures:
    """What was measured.

    Attributes:
        observations: Rows.
        entities: With quotas.
        seconds: Of each arm, round by round; the first round is not among them.
        peaks: Resident bytes of the process with Spark and DuckDB, by program.
        chain: The chain, run by run.
        load: Of the machine before the first round.
    """

    observations: int
    entities: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    peaks: Mapping[str, int] = field(default_factory=dict)
    chain: list[Done] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])


def page(figures: Figures) -> str:
    """Return the page as Markdown."""
    return "\n".join([*_head(figures), *_arms(figures), *_chain(figures), *_goals(figures), ""])


def _head(figures: Figures) -> Iterator[str]:
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    yield "# Benchmark of the pipeline"
    yield ""
    yield "Written by `make bench-pipeline`; the options are those of `scripts/bench_pipeline.py`."
    yield ""
    yield f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    yield f"- Machine: {os.cpu_count()} CPUs, {_memory_gib()} GiB, {platform.system()}"
    yield f"- Load before the run: {figures.load:.1f} (1 minute); a quiet machine has under 1"
    yield f"- Versions: Python {platform.python_version()}, {versions}"
    yield (
        f"- Data: `synth`, {figures.observations:,} observations, {figures.entities:,} entities "
        "with quotas"
    )
    yield ""


def _arms(figures: Figures) -> Iterator[str]:
    rounds = len(figures.seconds[LOOK_UPS])
    yield "## The limit of each observation"
    yield ""
    yield (
        f"All arms on the same files and two cores, in turn, {rounds} rounds after one that is "
        "thrown away. Each makes its tables of quotas within the run, and counts observations and "
        "sums limits by level and key; all answers are equal. `resolve` looks up the names of a "
        "split of a file, each once; the eight joins look up each observation."
    )
    yield ""
    yield "| arm | median s | least s | most s | M rows/s | to three look-ups |"
    yield "|---|---|---|---|---|---|"
    ours = median(figures.seconds[LOOK_UPS])
    for arm, seconds in figures.seconds.items():
        took = median(seconds)
        yield (
            f"| {arm} | {took:.2f} | {min(seconds):.2f} | {max(seconds):.2f} "
            f"| {figures.observations / took / 1e6:.2f} | {took / ours:.2f} |"
        )
    yield ""
    yield f"Peak memory (RSS): {_memory(figures.peaks)}; Python holds DuckDB, too."
    yield ""


def _chain(figures: Figures) -> Iterator[str]:
    if not figures.chain:
        return
    yield "## The chain, from tidy Parquet to incidents"
    yield ""
    yield "`quota-pipeline run` in a process of its own, the start of Spark included."
    yield ""
    yield "| run | s | peak memory (RSS) | steps |"
    yield "|---|---|---|---|"
    for number, done in enumerate(figures.chain, 1):
        steps = done.report.get("steps", {})
        durations = ", ".join(f"{name} {step['seconds']:.1f} s" for name, step in steps.items())
        yield f"| {number} | {done.seconds:.1f} | {_memory(done.peaks)} | {durations} |"
    yield ""


def _goals(figures: Figures) -> Iterator[str]:
    ours = median(figures.seconds[LOOK_UPS])
    joins = median(figures.seconds[JOINS]) / ours
    duckdb = ours / median(figures.seconds[DUCKDB])
    yield "## Goals"
    yield ""
    if figures.observations < _GOAL_ROWS:
        yield (
            f"They are set for {_GOAL_ROWS:,} observations; with fewer, what a run costs whatever "
            "its size (planning, the tables of quotas) weighs more."
        )
        yield ""
    yield "| goal | measured | met |"
    yield "|---|---|---|"
    yield _goal("at least 3 times as fast as eight joins", f"{joins:.2f}", joins >= _TIMES_JOINS)
    yield _goal("at most 2.5 times DuckDB's time", f"{duckdb:.2f}", duckdb <= _TIMES_DUCKDB)
    if figures.chain:
        took = median([done.seconds for done in figures.chain])
        yield _goal("the chain in less than 75 s", f"{took:.1f} s", took < _CHAIN_S)


def _goal(what: str, measured: str, met: bool) -> str:  # noqa: FBT001 - a column
    return f"| {what} | {measured} | {'yes' if met else 'no'} |"


def _memory(peaks: Mapping[str, int]) -> str:
    kinds: Sequence[str] = ("java", "python")
    return ", ".join(f"{kind} {peaks.get(kind, 0) / 2**30:.1f} GiB" for kind in kinds)


def _memory_gib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30


def write_page(figures: Figures, path: Path) -> None:
    """Write the page."""
    path.write_text(page(figures))
