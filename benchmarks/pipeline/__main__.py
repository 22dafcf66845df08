"""Measure ``resolve`` beside eight joins and DuckDB, then the whole chain, in one run.

The chain runs on names that come and go, on names that are there all day, and on the newest hour of
twelve brokers, which is compared with a script that reads and writes the same rows.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from app.pipeline.spark import spark_session
from benchmarks.measures import grid
from benchmarks.pipeline import duckdb_arm, spark_arms
from benchmarks.pipeline.rounds import run_in_turn, times_of
from benchmarks.pipeline.shapes import CLUSTER, Steady
from benchmarks.pipeline.spark_arms import Answer
from benchmarks.report import memory_gib
from benchmarks.stack import Progress

LOOK_UPS: Final = "tasks of Arrow (`resolve`)"
JOINS: Final = "Spark, eight broadcast left joins"
DUCKDB: Final = "DuckDB, four look-ups"
SESSIONS: Final = "names that come and go"
ALL_DAY: Final = "names that are there all day"
LAST_HOUR: Final = "`run --last 1h` of twelve brokers"
BARE: Final = "a script that reads that hour and writes its rows"

_THREADS: Final = 2
_PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks-pipeline.md"
_LOOK_S: Final = 0.5
_TIMES_JOINS: Final = 3.0
_TIMES_DUCKDB: Final = 2.5
_TIMES_SECOND_CORE: Final = 1.7
_READINGS: Final = 3
"""So often the arms with one and two cores read the names."""
_CHAIN_S: Final = 80.0
_CHAIN_GIB: Final = 5.0
_TIMES_BARE: Final = 1.5
_BROKERS: Final = 12
_KEYS: Final = 2
_HOUR: Final = 60
_DAY: Final = 1440
_HOURS_OF_INPUT: Final = 2
_BUCKETS_OF_HOUR: Final = 500
_GOAL_ROWS: Final = 20_000_000
_PACKAGES: Final = ("pyspark", "pyarrow", "duckdb")

Peaks = dict[str, int]
"""The largest sum of resident bytes of a process and its descendants: ``java`` and ``python``."""


@dataclass(frozen=True)
class Done:
    """What a command of the pipeline took.

    Attributes:
        seconds: From the start of its process to its end.
        processor_s: That the process and its descendants computed.
        peaks: Of their memory.
        report: Its own.
    """

    seconds: float
    processor_s: float
    peaks: Peaks
    report: Mapping[str, Any]


@dataclass
class Figures:
    """What was measured.

    Attributes:
        observations: Rows of the input.
        entities: With quotas.
        names: In all hours, each of which is looked up.
        seconds: Of each arm, round by round; the first round is not among them.
        cores: Seconds of the look-ups by the number of cores, round by round.
        peaks: Of the process with Spark and DuckDB.
        chain: The chain and what it is compared with, each run by run.
        load: Of the machine before the first round.
    """

    observations: int
    entities: int
    names: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cores: dict[int, list[float]] = field(default_factory=dict)
    peaks: Peaks = field(default_factory=dict)
    chain: dict[str, list[Done]] = field(default_factory=dict)
    load: float = field(default_factory=lambda: os.getloadavg()[0])


def main() -> int:
    """Run everything and write the page."""
    options, progress = _parser().parse_args(), Progress()
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as directory:
        folder = options.data or Path(directory)
        data = _made_up(folder, options.observations, options.entities)
        figures = Figures(options.observations, options.entities)
        _measure_arms(figures, data, options.rounds, progress)
        _measure_cores(figures, data, options.rounds, progress)
        commands = _chains(folder, data, options)
        for number in range(options.chains):
            for name, command in commands.items():
                progress.say(f"{name}: {number + 1} of {options.chains}")
                with tempfile.TemporaryDirectory(prefix="chain-", dir=directory) as out:
                    figures.chain.setdefault(name, []).append(_run(*command, "--out", out))
    text = "\n\n".join(_sections(figures)) + "\n"
    options.page.write_text(text)
    print(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--observations", type=int, default=20_000_000, metavar="N")
    parser.add_argument("--entities", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="after the first")
    parser.add_argument("--chains", type=int, default=1, metavar="N", help="runs of the chain")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep what synth wrote there")
    parser.add_argument("--page", type=Path, default=_PAGE, metavar="FILE")
    return parser


def _made_up(folder: Path, observations: int, entities: int) -> Path:
    """Return the folder of a synth run of that size, made now unless it is there."""
    data = folder / f"synth-{observations}-{entities}"
    if not (data / "complete").exists():
        sizes = ("--observations", str(observations), "--entities", str(entities))
        shape = ("--shape", "parquet", "--out", str(data), "--json")
        _run(*_JOB, "synth", "--seed", "1", *sizes, *shape)
        (data / "complete").touch()
    return data


def _chains(folder: Path, data: Path, options: argparse.Namespace) -> dict[str, Sequence[str]]:
    """Return the commands of the chain, and of the script, without their ``--out``."""
    names = -(-options.observations // (_BROKERS * _KEYS * _DAY))
    all_day = _steady(folder, Steady(_BROKERS, names, _DAY, options.entities))
    minutes = _HOURS_OF_INPUT * _HOUR
    hours = _steady(folder, Steady(_BROKERS, _BUCKETS_OF_HOUR, minutes, options.entities))
    script = ("-m", "benchmarks.pipeline.bare_script", "--input", str(hours / "parquet"))
    return {
        SESSIONS: (*_chain_of(data), "--cluster", "synth"),
        ALL_DAY: (*_chain_of(all_day), "--cluster", CLUSTER),
        LAST_HOUR: (*_chain_of(hours), "--cluster", CLUSTER, "--last", "1h"),
        BARE: script,
    }


def _steady(folder: Path, shape: Steady) -> Path:
    """Return the folder of a shape, made now unless it is there."""
    data = folder / f"steady-{shape.observations}-{shape.entities}"
    if not (data / "complete").exists():
        with spark_session("bench-pipeline", master=f"local[{_THREADS}]") as session:
            shape.write(session, data)
        (data / "complete").touch()
    return data


def _chain_of(data: Path) -> Sequence[str]:
    tables = ("--quotas", str(data), "--input", str(data / "parquet"))
    return (*_JOB, "run", "--json", "--format", "parquet", *tables)


_JOB: Final = ("-m", "app.pipeline.main")
_ENVIRONMENT: Final = dict(os.environ)
"""As it is before Spark is started in this process, which then names a Java of its own."""


def _run(*arguments: str) -> Done:
    """Run Python, timed from outside as a user sees it; it prints a report as JSON.

    Raises:
        RuntimeError: It failed.
    """
    command = [sys.executable, *arguments]
    begun, computed_s = time.monotonic(), dict[int, float]()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT) as process,
        _peaks(process.pid, computed_s) as peaks,
    ):
        stdout, _ = process.communicate()
    if process.returncode != 0:
        message = f"{' '.join(command)} ended with {process.returncode}"
        raise RuntimeError(message)
    took_s = time.monotonic() - begun
    return Done(took_s, sum(computed_s.values()), peaks, json.loads(stdout))


@contextmanager
def _peaks(pid: int, computed_s: dict[int, float] | None = None) -> Iterator[Peaks]:
    """Watch a process and its descendants for the length of the block; shared pages count.

    Args:
        pid: Of the process.
        computed_s: Gets the processor time of each; the script does not wait for its JVM.
    """
    peaks, done = {"java": 0, "python": 0}, threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK_S):
            now = dict.fromkeys(peaks, 0)
            with suppress(psutil.NoSuchProcess):
                root = psutil.Process(pid)
                for process in (root, *root.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        if computed_s is not None:
                            computed_s[process.pid] = sum(process.cpu_times()[:2])
                        # The JVM's forks bear the name of a thread, and share its memory.
                        kind = process.name().rstrip("0123456789.")
                        if kind in now:
                            now[kind] += process.memory_info().rss
            peaks.update({kind: max(peak, now[kind]) for kind, peak in peaks.items()})

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def _measure_arms(figures: Figures, data: Path, rounds: int, progress: Progress) -> None:
    engine = duckdb_arm.connected(_THREADS)
    with (
        spark_session("bench-pipeline", master=f"local[{_THREADS}]") as session,
        _peaks(os.getpid()) as figures.peaks,
    ):
        arms: Mapping[str, Callable[[], Answer]] = {
            LOOK_UPS: lambda: spark_arms.look_ups(session, data),
            JOINS: lambda: spark_arms.eight_joins(session, data),
            DUCKDB: lambda: duckdb_arm.look_ups(engine, data),
        }
        figures.seconds, answer = run_in_turn(arms, rounds, say=progress.say)
        figures.names = sum(rows for rows, _ in answer.values())
    engine.close()


def _measure_cores(figures: Figures, data: Path, rounds: int, progress: Progress) -> None:
    """Do the look-ups of more names on one core, then on two, each with its own JVM."""
    for cores in range(1, _THREADS + 1):
        with spark_session("bench-pipeline", master=f"local[{cores}]") as session:
            look_ups = partial(spark_arms.look_ups, session, data, times=_READINGS)
            arm = f"{cores} cores"
            seconds, _ = run_in_turn({arm: look_ups}, rounds, say=progress.say)
            figures.cores[cores] = seconds[arm]


def _sections(figures: Figures) -> Iterator[str]:
    """Yield the page in Markdown, text by text."""
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    size = f"{figures.observations:,} observations, {figures.entities:,} entities with quotas"
    yield "# Benchmark of the pipeline"
    yield "Written by `make bench-pipeline`; `python -m benchmarks.pipeline --help` has options."
    yield "\n".join(
        (
            f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            f"- Machine: {os.cpu_count()} CPUs, {memory_gib()} GiB, {platform.system()}",
            f"- Load before the run: {figures.load:.1f} (1 minute); a quiet machine has under 1",
            f"- Versions: Python {platform.python_version()}, {versions}",
            f"- Data: `synth`, {size}",
        )
    )
    medians = {arm: median(seconds) for arm, seconds in figures.seconds.items()}
    yield "## The limit of each name"
    yield (
        f"{figures.names:,} names. All arms on the same files and two cores, in turn, "
        f"{len(figures.seconds[LOOK_UPS])} rounds after one that is thrown away. Each makes its "
        "tables of quotas within the run, and counts rows and sums limits by level and key; all "
        "answers are equal. All find the limit of each name of each hour in the table `series`, "
        "never of a minute, as `resolve` does, which looks equal names up once in a task."
    )
    rows = []
    for arm, seconds in figures.seconds.items():
        ratios = (figures.names / medians[arm] / 1e6, medians[arm] / medians[LOOK_UPS])
        rows.append([arm, *times_of(seconds), *(f"{ratio:.2f}" for ratio in ratios)])
    columns = ("arm", "median s", "least s", "most s", "M rows/s", "to `resolve`")
    yield grid(columns, rows)
    yield f"Peak memory (RSS): {_memory(figures.peaks)}; Python holds DuckDB, too."
    yield "## A second core"
    yield (
        f"The look-ups of the same names, read {_READINGS} times; the tables of quotas are made "
        "within."
    )
    rows = [[str(cores), *times_of(seconds)] for cores, seconds in figures.cores.items()]
    yield grid(("cores", "median s", "least s", "most s"), rows)
    if figures.chain:
        yield "## The chain, from tidy Parquet to incidents"
        yield (
            "`quota-pipeline run` in a process of its own, the start of Spark included. Processor "
            "seconds are those of all its processes."
        )
        headers = ("run", "s", "processor s", "peak memory (RSS)", "steps")
        yield grid(headers, list(_chain(figures.chain)))
    yield "## Goals"
    if figures.observations < _GOAL_ROWS:
        yield (
            f"They are set for {_GOAL_ROWS:,} observations; with fewer, what a run costs whatever "
            "its size (planning, the tables of quotas) weighs more."
        )
    yield grid(("goal", "measured", "met"), list(_goals(medians, figures)))


def _chain(chain: Mapping[str, list[Done]]) -> Iterator[list[str]]:
    for name, runs in chain.items():
        for done in runs:
            steps = done.report.get("steps", {})
            durations = ", ".join(f"{step} {each['seconds']:.1f} s" for step, each in steps.items())
            took = (f"{done.seconds:.1f}", f"{done.processor_s:.1f}")
            yield [name, *took, _memory(done.peaks), durations]


def _goals(medians: Mapping[str, float], figures: Figures) -> Iterator[list[str]]:
    joins, duckdb = medians[JOINS] / medians[LOOK_UPS], medians[LOOK_UPS] / medians[DUCKDB]
    second = median(figures.cores[1]) / median(figures.cores[_THREADS])
    yes = {True: "yes", False: "no"}
    claim = f"at least {_TIMES_JOINS:g} times as fast as eight joins"
    yield [claim, f"{joins:.2f}", yes[joins >= _TIMES_JOINS]]
    claim = f"at most {_TIMES_DUCKDB:g} times DuckDB's time"
    yield [claim, f"{duckdb:.2f}", yes[duckdb <= _TIMES_DUCKDB]]
    claim = f"a second core makes it at least {_TIMES_SECOND_CORE} times as fast"
    yield [claim, f"{second:.2f}", yes[second >= _TIMES_SECOND_CORE]]
    took = {name: median(run.seconds for run in runs) for name, runs in figures.chain.items()}
    for name in (SESSIONS, ALL_DAY) if took else ():
        claim = f"the chain of {name} in less than {_CHAIN_S:.0f} s"
        yield [claim, f"{took[name]:.1f} s", yes[took[name] < _CHAIN_S]]
        gib = max(sum(run.peaks.values()) for run in figures.chain[name]) / 2**30
        yield [f"in at most {_CHAIN_GIB:g} GiB", f"{gib:.1f} GiB", yes[gib <= _CHAIN_GIB]]
    if took:
        times = took[LAST_HOUR] / took[BARE]
        claim = f"{LAST_HOUR} at most {_TIMES_BARE:g} times {BARE}"
        yield [claim, f"{times:.2f}", yes[times <= _TIMES_BARE]]


def _memory(peaks: Peaks) -> str:
    return ", ".join(f"{kind} {peak / 2**30:.1f} GiB" for kind, peak in peaks.items())


if __name__ == "__main__":
    sys.exit(main())
