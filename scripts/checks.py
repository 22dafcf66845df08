"""Run the checks of the project, print each one's name and duration, and stop where they fail.

`static` runs the cheap ones, all of them even where one fails; `all` goes on with every test, in
three runs at the same time: most of what tests do is to wait for brokers and databases.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
DYING = [
    "tests/contract",
    "tests/faults",
    "tests/integration/localdev",
    "tests/integration/postgres",
]
ALL_OTHERS = [f"--ignore={room}" for room in (*COMPUTING, *DYING)]


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
    """Run the tests that are shown as they go, and beside them those that are shown at the end."""
    with ExitStack() as stack:
        beside = {_name(rooms): stack.enter_context(_beside(rooms)) for rooms in (COMPUTING, DYING)}
        others = "all other tests"
        failed = [] if _passes(others, ["pytest", *ALL_OTHERS]) else [others]
        return [*failed, *(name for name, passes in beside.items() if not passes())]


def _name(rooms: list[str]) -> str:
    return f"pytest {' '.join(rooms)}"


@contextmanager
def _beside(rooms: list[str]) -> Iterator[Callable[[], bool]]:
    """Run tests beside what else is done; what it gives waits for their end and tells of them."""
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(
            [BIN / "pytest", *rooms], cwd=ROOT, stdout=told, stderr=subprocess.STDOUT
        )

        def passes() -> bool:
            print(f"== {_name(rooms)}", flush=True)
            code = process.wait()
            told.seek(0)
            print(told.read(), flush=True)
            verdict = "passed" if code == 0 else "FAILED"
            seconds = time.monotonic() - begun
            print(f"== {_name(rooms)} {verdict} in at most {seconds:.1f} s", flush=True)
            return code == 0

        try:
            yield passes
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
