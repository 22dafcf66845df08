"""Run the checks of the project; print the name, result and duration of each.

`static` runs the checks that start no server. `all` runs every test and, beside the tests, which
mostly wait, the static checks. Whatever a run starts ends with it. The exit code is 0 where
everything passed, 1 where something failed or was left running, 75 where nothing failed but a check
could not be run on this machine, and 130 after Ctrl-C.
"""

import asyncio
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.localdev.processes import descendants_of

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-quota-service"
TYPES = CACHE / "mypy"
"""For all checkouts: mypy compares the digest of each file with that of its own."""

WORKERS = "5"
"""As many as there are long groups in tests/testkit/groups.py, which often wait."""

NOT_RUN = os.EX_TEMPFAIL
"""The exit code of a check that lacks what it needs."""

RESULTS: Mapping[int | None, str] = {0: "passed", NOT_RUN: "NOT RUN", None: "not ended"}
END_WITHIN_S = 30.0
POLL_S = 0.02
PR_SET_CHILD_SUBREAPER = 36
"""Source: linux/prctl.h."""


@dataclass
class Check:
    """A command and its result.

    Attributes:
        live: print its output as it comes, not at the end where it fails.
        minutes: how long it takes on two quiet cores, which is printed when it begins; or 0.
        environ: what is added to the environment.
        seconds: how long it took.
        code: its exit code; null as long as it has not ended.
    """

    name: str
    command: Sequence[str]
    live: bool = False
    minutes: int = 0
    environ: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    code: int | None = None

    async def run(self, output: Path) -> None:
        """Run it in a process group of its own, which Ctrl-C does not reach; print the result."""
        program, *arguments = self.command
        command: list[str | Path] = [BIN / program, *arguments]
        if not self.live:
            command = ["nice", "-n", "5", *command]
        begun = time.monotonic()
        with output.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                env={**os.environ, **self.environ},
                stdin=subprocess.DEVNULL,
                stdout=None if self.live else file,
                stderr=None if self.live else subprocess.STDOUT,
                process_group=0,
            )
        try:
            self.code = await process.wait()
        except asyncio.CancelledError:
            # pytest stops its servers; mypy, which is compiled, heeds SIGINT only seconds later.
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT if self.live else signal.SIGTERM)
            raise
        self.seconds = time.monotonic() - begun
        print(f"\n{self}", flush=True)

    def __str__(self) -> str:
        return f"== {self.name} {RESULTS.get(self.code, 'FAILED')} in {self.seconds:.1f} s"


def main(arguments: list[str]) -> int:
    """Return 0 when everything asked for passed."""
    if arguments not in (["static"], ["all"]):
        sys.exit("usage: checks.py static|all")
    queues = [
        [Check("types", ["mypy", "--cache-dir", str(TYPES)])],
        [
            Check("imports", ["lint-imports"]),
            Check("house", ["python", "scripts/house.py"]),
            Check("OpenAPI diff", ["kafka-quota-service", "openapi", "--check"]),
            Check("lint", ["ruff", "check", "."]),
            Check("format", ["ruff", "format", "--check", "."]),
        ],
    ]
    if arguments == ["all"]:
        # What one process has compiled and rewritten, each worker would do for itself.
        collection = Check("collection", ["pytest", "--collect-only", "-q"])
        tests = Check("tests", ["pytest", "-n", WORKERS, "--durations=10"], live=True)
        queues.insert(0, [collection, tests])
    return run(queues)


def run(queues: Sequence[Sequence[Check]]) -> int:
    """Run each queue in order and the queues beside each other; return the exit code.

    What a check of a single queue leaves running ends before the next one.
    """
    adopt_orphans()
    # Without its cache of bytecode each process that a test starts compiles every library anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    checks, left = [check for queue in queues for check in queue], list[str]()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(_run(queues, Path(folder), left))
        except KeyboardInterrupt:
            print("\nInterrupted: everything ends.", flush=True)
            end_everything()
            print("", *checks, sep="\n")
            return 128 + signal.SIGINT
        left += end_everything()
        print(f"\n{_cores_used(time.monotonic() - begun)}")
        return _report(checks, left, Path(folder))


def adopt_orphans() -> None:
    """Become the parent of every process whose own parent ends, to see what a test leaves."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def _run(queues: Sequence[Sequence[Check]], folder: Path, left: list[str]) -> None:
    begun = time.monotonic()

    async def run_in_order(queue: Sequence[Check]) -> None:
        for number, check in enumerate(queue, 1):
            if check.minutes:
                gone = (time.monotonic() - begun) / 60
                which = f"step {number} of {len(queue)}: {check.name}"
                print(f"\n== {which}, about {check.minutes} min; {gone:.0f} min gone", flush=True)
            await check.run(folder / check.name)
            if len(queues) == 1:
                left.extend(end_everything())

    await asyncio.gather(*map(run_in_order, queues))


def end_everything() -> list[str]:
    """Wait for what is still running, then kill it; return the commands that had to be killed."""
    killed = []
    while not _reap(END_WITHIN_S):
        for pid in descendants_of(os.getpid()):
            with suppress(ProcessLookupError):
                killed.append(_command_line(pid))
                os.kill(pid, signal.SIGKILL)
    return killed


def _reap(within_s: float) -> bool:
    """Wait until no child runs; return whether that was so in time."""
    deadline = time.monotonic() + within_s
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(POLL_S)
        return False
    return True


def _command_line(pid: int) -> str:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").rstrip()
    return f"process {pid}"


def _cores_used(within_s: float) -> str:
    """Say how much the checks and all that they started computed: the rest was waiting."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy_s = used.ru_utime + used.ru_stime
    cores = os.cpu_count() or 1
    share = busy_s / max(within_s * cores, 0.001)
    return f"{busy_s:.0f} s of CPU in {within_s:.0f} s: {share:.0%} of {cores} cores"


def _report(checks: Sequence[Check], left: Sequence[str], folder: Path) -> int:
    """Print what the failed checks printed, and every result; return the exit code."""
    failed = [check for check in checks if check.code not in {0, NOT_RUN}]
    for check in failed:
        output = (folder / check.name).read_text(errors="replace")
        print(f"\n== {check.name}: {' '.join(check.command)}\n{output}", end="")
    print("", *checks, sep="\n")
    for command in left:
        print(f"== Left running, and killed: {command}")
    if failed:
        print(f"Failed: {', '.join(check.name for check in failed)}.")
    if failed or left:
        return 1
    return NOT_RUN if any(check.code == NOT_RUN for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
