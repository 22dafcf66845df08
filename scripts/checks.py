"""Run the checks of the project, print each one's name and duration, and stop where they fail.

`static` runs the cheap ones, all of them even where one fails; `all` goes on with every test: those
that mostly wait for brokers and databases, and beside them those that compute.
"""

import subprocess
import sys
import tempfile
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
COMPUTING = ["tests/unit", "tests/model", "tests/pipeline"]
WAITING = [f"--ignore={room}" for room in COMPUTING]


def main(arguments: list[str]) -> int:
    """Return 0 when everything asked for passed."""
    if arguments not in (["static"], ["all"]):
        sys.exit("usage: checks.py static|all")
    failed = [name for name, command in STATIC.items() if not _passes(name, command)]
    if not failed and arguments == ["all"]:
        failed = _failed_tests()
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


def _failed_tests() -> list[str]:
    """Run both kinds of tests at the same time; tell of the second kind when it has ended."""
    with tempfile.TemporaryFile("w+") as told:
        command = [BIN / "pytest", *COMPUTING]
        begun = time.monotonic()
        computing = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=subprocess.STDOUT)
        try:
            failed = [] if _passes("tests", ["pytest", *WAITING]) else ["tests"]
            name = f"tests beside them: pytest {' '.join(COMPUTING)}"
            print(f"== {name}", flush=True)
            code = computing.wait()
        finally:
            computing.terminate()
            computing.wait()
        told.seek(0)
        print(told.read(), flush=True)
        verdict = "passed" if code == 0 else "FAILED"
        print(f"== {name} {verdict} in at most {time.monotonic() - begun:.1f} s", flush=True)
    return [*failed, *([] if code == 0 else ["tests beside them"])]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
