"""Run the fault tests at length: more kills, real pauses, a real quorum, the real 95 s.

They take an hour and no part of `make test`. Files named long_*.py are collected here alone.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"


def main() -> int:
    """Return 0 when every run was judged clean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="kill -9 of the service at random")
    parser.add_argument("--seed", type=int, default=1, help="what is random follows from it")
    parser.add_argument(
        "only", nargs="*", help="parts of the names of the tests to run; default all"
    )
    arguments = parser.parse_args()
    long_ones = sorted(str(path) for path in (ROOT / "tests" / "faults").rglob("long_*.py"))
    command = [BIN / "pytest", "--timeout=0", "-v", ROOT / "tests" / "faults" / "lives", *long_ones]
    if arguments.only:
        command += ["-k", " or ".join(arguments.only)]
    environ = {"FAULTS_KILLS": str(arguments.kills), "FAULTS_SEED": str(arguments.seed)}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
