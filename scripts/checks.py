"""Run the checks of the project, print each one's name and duration, and stop where they fail.

`static` runs the cheap ones, all of them even where one fails; `all` goes on with every test.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"

STATIC = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
    "OpenAPI diff": ["kafka-quota-service", "openapi", "--check"],
}
TESTS = {"tests": ["pytest"]}


def main(arguments: list[str]) -> int:
    """Return 0 when everything asked for passed."""
    if arguments not in (["static"], ["all"]):
        sys.exit("usage: checks.py static|all")
    failed = [name for name, command in STATIC.items() if not _passes(name, command)]
    if not failed and arguments == ["all"]:
        failed = [name for name, command in TESTS.items() if not _passes(name, command)]
    if failed:
        print(f"Failed: {', '.join(failed)}.", flush=True)
    return 1 if failed else 0


def _passes(name: str, command: list[str]) -> bool:
    print(f"== {name}: {' '.join(command)}", flush=True)
    begun = time.monotonic()
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, check=False)
    verdict = "passed" if done.returncode == 0 else "FAILED"
    print(f"== {name} {verdict} in {time.monotonic() - begun:.1f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
