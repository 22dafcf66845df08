"""A fork server: it has imported the service, so a start costs a fork and no imports.

What runs is ``kafka-quota-service`` with the arguments of the start, as a process of its own. The
environment of a start replaces that of the server. Each pytest process has a server of its own.
"""

import atexit
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.testkit.ledger import count, kind_of
from tests.testkit.patience import pauses

DEADLINE_S: Final = 30.0


class ForkedProcess:
    """A process of the fork server, with as much of ``subprocess.Popen`` as tests need.

    Attributes:
        pid: Nothing else has this process id before ``poll`` or ``wait`` has returned the code.
        returncode: Negative for a signal; null while it runs.
    """

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """Return the exit code, or null while it runs."""
        if self.returncode is None:
            self.returncode = self._server.exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code.

        Raises:
            TimeoutExpired: It still runs after so many seconds.
        """
        pause = pauses()
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(next(pause))
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server, as seen from the tests; threads may share it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.testkit.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()

    def start(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        stdout: Path,
        stderr: Path | None = None,
    ) -> ForkedProcess:
        """Start the command; what it prints is appended to a file, errors to another if named."""
        if kind := kind_of(["app.main", *arguments]):
            count(kind)
        files = [str(stdout), str(stderr or stdout)]
        pid = self._ask({"arguments": list(arguments), "environ": dict(environ), "files": files})
        return ForkedProcess(self, pid)

    def exit_code(self, pid: int) -> int | None:
        """Return the exit code of a process of this server, or null while it runs."""
        code: int | None = self._ask({"pid": pid})
        return code

    def close(self) -> None:
        """End the server, and kill what it has started and still runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE_S)
        self._process.stdout.close()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())


@functools.cache
def fork_server() -> ForkServer:
    """Return the fork server of this process; it ends with it."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def _serve() -> None:
    """Answer requests until the input ends. A forked process leaves this function as the command.

    An end of the tests that is no clean one ends the input as well.
    """
    from app import server, startup_checks  # noqa: F401, PLC0415 - what takes long to import

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    codes: dict[int, int | None] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            pid = request["pid"]
            if codes[pid] is None:
                ended, status = os.waitpid(pid, os.WNOHANG)
                codes[pid] = os.waitstatus_to_exitcode(status) if ended else None
            answer = codes[pid]
        else:
            answer = os.fork()
            if not answer:
                sys.exit(_run(**request))
            codes[answer] = None
        print(json.dumps(answer), flush=True)
    for pid, code in codes.items():
        if code is None:
            os.kill(pid, signal.SIGKILL)


def _run(arguments: Sequence[str], environ: Mapping[str, str], files: Sequence[str]) -> int:
    from app.main import main  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate((os.devnull, *files)):
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["kafka-quota-service", *arguments]
    return main(arguments)


if __name__ == "__main__":
    _serve()
