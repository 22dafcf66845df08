"""Run at length what `make test` runs small or leaves out: `make faults`.

Each step is a run of tests at their long sizes, or a script. The steps run one after the other; a
summary follows, with the figures of every judged run. The exit code is 0 where everything passed,
1 where something failed or was left running, 75 where nothing failed but a step could not be run on
this machine, and 130 after Ctrl-C.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checks import BIN, ROOT, adopt_orphans, end_everything

NOT_RUN = os.EX_TEMPFAIL
"""The exit code of a step that lacks what it needs."""

FIGURES = "figures.jsonl"
INTERRUPTED = 128 + signal.SIGINT
WORDS: Mapping[int | None, str] = {0: "passed", NOT_RUN: "NOT RUN", None: "not ended"}


@dataclass
class Step:
    """A command and its result.

    Attributes:
        minutes: how long it takes on two quiet cores.
        arguments: of pytest; of Python where `script` is set.
        script: a program of its own, which chooses its sizes by itself.
        code: its exit code; null as long as it has not ended.
    """

    name: str
    minutes: int
    arguments: tuple[str, ...]
    script: bool = False
    seconds: float = 0.0
    code: int | None = None

    def run(self, folder: Path, seed: int) -> None:
        """Run it in a process group of its own, which gets Ctrl-C from this program."""
        command: list[str | Path] = [BIN / "python", *self.arguments]
        environ = dict(os.environ)
        if not self.script:
            command = [BIN / "pytest", "-v", "--timeout=0", "-m", "", *self.arguments]
            environ |= {
                "TEST_SIZE": "long",
                "TEST_SEED": str(seed),
                "FAULTS_FIGURES": str(folder / FIGURES),
            }
        begun = time.monotonic()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, process_group=0
        )
        try:
            self.code = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            raise
        finally:
            self.seconds = time.monotonic() - begun

    def __str__(self) -> str:
        result = WORDS.get(self.code, "FAILED")
        return f"{self.name:<{WIDTH}} {result:<9} {self.seconds:>7.0f} s"


CRASH = "tests/faults/crash_recovery"
QUORUM, REAL_BROKER = (f"{CRASH}/test_{name}.py" for name in ("quorum", "real_broker"))
CLUSTERS, STORES, REAL_METRICS = (
    f"tests/pipeline/test_{name}.py" for name in ("clusters", "stores", "real_metrics")
)
IN_HTTP = "tests/integration/http"

STEPS = (
    Step("properties", 8, ("-n", "4", "-m", "hypothesis", "tests/unit")),
    Step("schemathesis", 6, (f"{IN_HTTP}/test_schemathesis.py",)),
    Step("authorization", 8, (f"{IN_HTTP}/authorization",)),
    Step(
        "conformance",
        2,
        tuple(
            f"{IN_HTTP}/test_{name}.py"
            for name in ("alter_conformance", "generated_client", "resolve")
        ),
    ),
    Step(
        "concurrency",
        4,
        (
            "tests/faults/http/test_concurrency.py",
            f"{IN_HTTP}/test_plans.py",
            f"{IN_HTTP}/test_applied_alterations.py",
        ),
    ),
    Step("hostile-callers", 12, ("tests/faults/http/test_hostile_callers.py",)),
    Step(
        "postgres",
        15,
        ("tests/faults/http/test_postgres_troubles.py", "tests/faults/http/test_outages.py"),
    ),
    Step(
        "records",
        6,
        (
            "tests/contract/test_fake_cluster.py",
            "tests/integration/postgres/test_keys.py",
            "tests/model/test_broker_queue.py",
        ),
    ),
    Step("restarts", 20, ("tests/faults/http/test_restarts.py",)),
    Step("crash-recovery", 18, (CRASH, f"--ignore={QUORUM}", f"--ignore={REAL_BROKER}")),
    Step("real-broker", 12, (REAL_BROKER,)),
    Step("quorum", 40, (QUORUM,)),
    Step(
        "pipeline",
        8,
        ("tests/pipeline", *(f"--ignore={each}" for each in (CLUSTERS, STORES, REAL_METRICS))),
    ),
    Step("clusters", 8, (CLUSTERS,)),
    Step("stores", 12, (STORES,)),
    Step("real-metrics", 6, (REAL_METRICS,)),
    Step("documents", 4, ("tests/integration/localdev/test_dev.py", "-k", "page")),
    Step("benchmarks", 3, ("tests/integration/benchmarks",)),
    Step("kafka-versions", 12, ("scripts/other_versions.py", "kafka"), script=True),
    Step("other-python", 4, ("scripts/other_versions.py", "python"), script=True),
    Step("newest-pyspark", 5, ("scripts/other_versions.py", "pyspark"), script=True),
    Step("mutants", 5, ("scripts/mutants.py",), script=True),
)
WIDTH = max(len(step.name) for step in STEPS)


def main(words: Sequence[str] | None = None) -> int:
    """Run the chosen steps and return the exit code."""
    names = [step.name for step in STEPS]
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [STEP ...]")
    parser.add_argument("--list", action="store_true", help="print the steps and run nothing")
    parser.add_argument("--seed", type=int, default=1, help="what is random follows from it")
    parser.add_argument("steps", nargs="*", metavar="STEP", help="default: all of them")
    options = parser.parse_args(words)
    unknown = set(options.steps) - set(names)
    if unknown:
        parser.error(f"no step is called {', '.join(sorted(unknown))}; --list prints their names")
    chosen = [step for step in STEPS if not options.steps or step.name in options.steps]
    print(plan(chosen), flush=True)
    return 0 if options.list else run(chosen, options.seed)


def plan(steps: Sequence[Step]) -> str:
    """Return a line for each step, and the sum of their minutes."""
    lines = [
        f"{step.name:<{WIDTH}} {step.minutes:>4} min  {' '.join(step.arguments)}" for step in steps
    ]
    return "\n".join(
        [*lines, f"{'together':<{WIDTH}} {sum(step.minutes for step in steps):>4} min"]
    )


def run(steps: Sequence[Step], seed: int = 1) -> int:
    """Run one step after the other and print the summary; return the exit code."""
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        interrupted, left = False, list[str]()
        try:
            left = _run(steps, Path(folder), seed)
        except KeyboardInterrupt:
            print("\nInterrupted: everything ends.", flush=True)
            end_everything()
            interrupted = True
        _report(steps, left, Path(folder) / FIGURES)
    return INTERRUPTED if interrupted else exit_code(steps, left)


def _run(steps: Sequence[Step], folder: Path, seed: int) -> list[str]:
    """Run them; return the commands that they left running, which are killed."""
    begun, left = time.monotonic(), list[str]()
    for number, step in enumerate(steps, 1):
        gone = (time.monotonic() - begun) / 60
        print(
            f"\n== step {number} of {len(steps)}: {step.name}, about {step.minutes} min;"
            f" {gone:.0f} min gone",
            flush=True,
        )
        step.run(folder, seed)
        left += end_everything()
        print(f"== {step}", flush=True)
    return left


def _report(steps: Sequence[Step], left: Sequence[str], figures: Path) -> None:
    if figures.exists():
        sys.path.insert(0, str(ROOT))
        from tests.testkit.history.checker import figures_text  # noqa: PLC0415

        print(f"\n{figures_text(figures)}")
    print("", *steps, *(f"== Left running, and killed: {command}" for command in left), sep="\n")


def exit_code(steps: Sequence[Step], left: Sequence[str]) -> int:
    """Return the exit code of the whole."""
    codes = {step.code for step in steps}
    if left or not codes <= {0, NOT_RUN}:
        return 1
    return NOT_RUN if NOT_RUN in codes else 0


if __name__ == "__main__":
    sys.exit(main())
