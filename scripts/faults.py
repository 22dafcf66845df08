"""Run at length what `make test` runs small or leaves out: `make faults`.

Each step is a run of tests at their long sizes, or a script. The steps run one after the other; a
summary follows, and the figures of every judged run. The exit code is 75 where nothing failed but a
step could not be run on this machine; the others are those of checks.py.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import checks
from checks import Check


class Step(NamedTuple):
    """A check that takes long.

    Attributes:
        minutes: how long it takes on two quiet cores.
        arguments: of pytest; of Python where `script` is set.
        script: a program of its own, which chooses its sizes by itself.
    """

    name: str
    minutes: int
    arguments: tuple[str, ...]
    script: bool = False

    def check(self, figures: Path, seed: int) -> Check:
        """Return what is to be run; judged runs add their figures to a file."""
        command, environ = ["python", *self.arguments], dict[str, str]()
        if not self.script:
            command = ["pytest", "-v", "--timeout=0", "-m", "", *self.arguments]
            environ |= {"TEST_SIZE": "long", "TEST_SEED": str(seed), "FAULTS_FIGURES": str(figures)}
        return Check(self.name, command, live=True, minutes=self.minutes, environ=environ)


CRASH = "tests/faults/crash_recovery"
QUORUM, REAL_BROKER, EXPIRIES = (
    f"{CRASH}/test_{name}.py" for name in ("quorum", "real_broker", "expiries")
)
CLUSTERS, STORES, REAL_METRICS, REAL_CALLBACKS, METRIC_SERVERS = OF_THEIR_OWN = tuple(
    f"tests/pipeline/test_{name}.py"
    for name in ("clusters", "stores", "real_metrics", "real_callbacks", "metric_servers")
)
WHATIF = "tests/pipeline/whatif/test_real_broker.py"
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
            for name in ("alter_conformance", "generated_client", "reading", "resolve")
        ),
    ),
    Step(
        "concurrency",
        6,
        (
            "tests/faults/http/test_concurrency.py",
            "tests/faults/http/test_rotations.py",
            "tests/faults/http/test_second_replica.py",
            f"{IN_HTTP}/test_large_reads.py",
            f"{IN_HTTP}/test_plans.py",
            f"{IN_HTTP}/test_applied_alterations.py",
            f"{IN_HTTP}/test_budgets.py",
        ),
    ),
    Step("callbacks", 14, ("tests/faults/http/test_quota_callbacks.py", REAL_CALLBACKS)),
    Step("slow-broker", 6, ("tests/faults/http/test_slow_broker.py",)),
    Step("mixed-load", 4, ("tests/faults/http/test_mixed_load.py",)),
    Step("several-clusters", 6, ("tests/faults/http/test_clusters.py",)),
    Step("page", 2, ("tests/browser/test_large_cluster.py",)),
    Step("error-codes", 4, ("tests/faults/http/test_error_codes.py",)),
    Step("hostile-callers", 12, ("tests/faults/http/test_hostile_callers.py",)),
    Step(
        "postgres",
        18,
        (
            "tests/faults/http/test_full_disk.py",
            "tests/faults/http/test_postgres_troubles.py",
            "tests/faults/http/test_outages.py",
            "tests/faults/http/test_in_flight.py",
        ),
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
    Step(
        "events",
        8,
        ("tests/faults/http/test_event_topic.py", "tests/faults/http/test_many_listeners.py"),
    ),
    Step("restarts", 20, ("tests/faults/http/test_restarts.py",)),
    Step(
        "crash-recovery",
        18,
        (CRASH, *(f"--ignore={each}" for each in (QUORUM, REAL_BROKER, EXPIRIES))),
    ),
    Step("expiries", 10, (EXPIRIES,)),
    Step("real-broker", 12, (REAL_BROKER,)),
    Step("quorum", 40, (QUORUM,)),
    Step(
        "pipeline",
        25,
        (
            "tests/pipeline",
            *(f"--ignore={each}" for each in (*OF_THEIR_OWN, WHATIF)),
        ),
    ),
    Step("clusters", 8, (CLUSTERS,)),
    Step("stores", 12, (STORES,)),
    Step("real-metrics", 14, (REAL_METRICS, WHATIF)),
    Step("prometheus", 8, ("tests/faults/prometheus", METRIC_SERVERS)),
    Step(
        "round-trips",
        6,
        ("tests/unit/client/test_every_document.py", "tests/unit/documents", "tests/unit/domain"),
    ),
    Step("documents", 12, ("tests/integration/localdev/test_dev.py", "-k", "page")),
    Step("benchmarks", 3, ("tests/integration/benchmarks",)),
    Step("kafka-versions", 12, ("scripts/other_versions.py", "kafka"), script=True),
    Step("other-python", 4, ("scripts/other_versions.py", "python"), script=True),
    Step("newest-pyspark", 12, ("scripts/other_versions.py", "pyspark"), script=True),
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
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures.jsonl")
        code = checks.run([[step.check(figures, seed) for step in steps]])
        if figures.exists():
            sys.path.insert(0, str(checks.ROOT))
            from tests.testkit.history.checker import figures_text  # noqa: PLC0415

            print(f"\n{figures_text(figures)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
