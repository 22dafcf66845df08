"""Run the unit tests with another Python than `make test`: the newest good one of this machine.

It gets an environment of its own, such as `.venv-3.13`. The exit code is 75 where this machine has
no other Python, because nothing was run then.
"""

import os
import subprocess
import sys
from pathlib import Path

from install import PREFERRED, ROOT, good_pythons

NOT_RUN = os.EX_TEMPFAIL


def main() -> int:
    """Return 0 when the tests passed, 75 when they were not run."""
    tested = PREFERRED.read_text().strip()
    others = [python for python in good_pythons() if python.minor_version != tested]
    if not others:
        print(f"NOT RUN: only Python {tested} was found; install another from 3.11 on.")
        return NOT_RUN
    newest = others[0]
    venv = ROOT / f".venv-{newest.minor_version}"
    install = [sys.executable, Path(__file__).with_name("install.py"), newest.base, "--venv", venv]
    subprocess.run(install, check=True)
    print(f"== unit tests with Python {newest.minor_version}", flush=True)
    command = [venv / "bin" / "python", "-m", "pytest", "-q", "-n", "4", "tests/unit"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
