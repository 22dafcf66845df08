"""Processes of the service that start at once: forked from one that has imported everything.

A start takes seconds of imports otherwise, and these tests start the service hundreds of times.
What runs is ``kafka-quota-service serve``; each is a process of its own, to be killed.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DEADLINE_S: Final = 30.0


class Born:
    """A process of the nursery."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._end = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.has_ended():
            signal.pidfd_send_signal(self._end, number)

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Tell whether it has ended, or does within the time."""
        return bool(select.select([self._end], [], [], within_s)[0])


class Nursery:
    """Where they come from."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._one_at_a_time = threading.Lock()

    def bear(self, environ: Mapping[str, str], log: Path) -> Born:
        """Start ``serve`` with these variables; what it prints is added to a file."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one_at_a_time:
            print(json.dumps([dict(environ), str(log)]), file=self._process.stdin, flush=True)
            return Born(int(self._process.stdout.readline()))


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Keep a nursery; it ends at the end of its input."""
    command = [sys.executable, "-m", "tests.faults.lives.nursery"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Nursery(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(DEADLINE_S)


def _keep() -> None:
    from app import serving  # noqa: F401, PLC0415 - to have it

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        environ, log = json.loads(line)
        pid = os.fork()
        if not pid:
            os._exit(_serve(environ, log))
        print(pid, flush=True)


def _serve(environ: Mapping[str, str], log: str) -> int:
    from app.main import main  # noqa: PLC0415

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with Path(log).open("ab") as out:
        for number in (1, 2):
            os.dup2(out.fileno(), number)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.environ.update(environ)
    return main(["serve"])


if __name__ == "__main__":
    _keep()
