"""Run the fault tests at length: more kills, real pauses, a real quorum, the real 95 s, a cluster.

They take an hour and no part of `make test`, which leaves out what is marked `long` and runs the
rest at small sizes. What each judged run was put through is printed at the end. Without names of
tests other versions of Kafka and of Python follow. The exit code is 75 where nothing failed, but
something could not be run on this machine.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"

STEPS = {
    "conformance on other versions of Kafka": "scripts/conformance.py",
    "unit tests with another Python": "scripts/other_python.py",
}
NOT_RUN = os.EX_TEMPFAIL
"""The exit code of a step that lacks what it needs."""


def main() -> int:
    """Return 0 when every run was judged clean, 75 when nothing failed but a step was not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="what is random follows from it")
    parser.add_argument(
        "only", nargs="*", help="parts of the names of the tests to run; default all"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.jsonl"
        environ = {
            "TEST_SIZE": "long",
            "TEST_SEED": str(arguments.seed),
            "FAULTS_FIGURES": str(figures),
        }
        command = _command(arguments.only)
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, check=False)
        if figures.exists():
            sys.path.insert(0, str(ROOT))
            from tests.testkit.history.checker import figures_text  # noqa: PLC0415

            print(f"\n{figures_text(figures)}")
    results = {"long tests": done.returncode}
    if not arguments.only:
        results |= {name: _run_step(name, script) for name, script in STEPS.items()}
    return report(results)


def _run_step(name: str, script: str) -> int:
    print(f"\n== {name}: {script}", flush=True)
    return subprocess.run([BIN / "python", script], cwd=ROOT, check=False).returncode


def report(results: Mapping[str, int]) -> int:
    """Print the result of each step by its exit code; return that of the whole."""
    words = {0: "passed", NOT_RUN: "NOT RUN"}
    for name, code in results.items():
        print(f"== {name}: {words.get(code, 'FAILED')}")
    if not set(results.values()) <= set(words):
        return 1
    return NOT_RUN if NOT_RUN in results.values() else 0


def _command(only: list[str]) -> list[str | Path]:
    larger = ("testkit.sizes", "pytest.mark.long")
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    chosen = [file for file in files if any(word in file.read_text() for word in larger)]
    command = [BIN / "pytest", "--timeout=0", "-v", "-m", "", *chosen]
    return [*command, "-k", " or ".join(map(_all_words, only))] if only else command


def _all_words(part: str) -> str:
    """Return what pytest takes for "all these words"; a name of a test may hold blanks."""
    words = [word for word in re.findall(r"[\w.-]+", part) if word not in {"and", "or", "not"}]
    return f"({' and '.join(words)})"


if __name__ == "__main__":
    sys.exit(main())
