"""A child process in a session of its own that dies with its parent, however the parent dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from app.localdev.errors import LocalDevError

_LAUNCHER = Path(__file__).with_name("launch.py")
_TAIL_LINES = 15
_PORT_TAKEN = b"Address already in use"

# Linux sends the parent-death signal when the *thread* that forked ends. This one ends with us.
_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="spawner")


@dataclass(frozen=True)
class RunAs:
    """The account of a child: its name, and whether it must pass directories closed to it."""

    user: str
    reach: bool


class Child:
    """One running program, its output in a file."""

    def __init__(self, name: str, log_path: Path) -> None:
        """Name the program for messages, and the file that takes its output."""
        self.name = name
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._logged_before = 0

    @property
    def pid(self) -> int:
        """The process id; an error where the program was not started."""
        if self._process is None:
            raise LocalDevError(f"{self.name} is not running: start it first.")
        return self._process.pid

    def start(
        self,
        command: Sequence[str | Path],
        *,
        directory: Path,
        environ: Mapping[str, str],
        run_as: RunAs | None = None,
    ) -> None:
        """Start the program; its output is appended to the log."""
        launch = launched(command, run_as)
        with self.log_path.open("ab") as log:
            self._logged_before = log.tell()
            self._process = _SPAWNER.submit(
                subprocess.Popen,
                launch,
                cwd=directory,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()

    def is_running(self) -> bool:
        """Tell whether the program was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def stop(self, asking: signal.Signals, deadline_s: float) -> bool:
        """Ask the program to end, wait, and kill it when it does not.

        Returns whether it ended by itself.
        """
        if self._process is None:
            return False
        self.resume()
        self.send(asking)
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._process = None
        return True

    def kill(self) -> None:
        """Kill the program and wait until it is gone."""
        if self._process is not None:
            self.send(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Halt the program; return when each of its threads stands still."""
        if self.is_running():
            os.kill(self.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a program go on that was paused."""
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the program has ended."""
        if self.is_running():
            os.kill(self.pid, number)

    def lacks_port(self) -> bool:
        """Tell whether the program says that another one has the port that it was given."""
        with self.log_path.open("rb") as log:
            log.seek(self._logged_before)
            return _PORT_TAKEN in log.read()

    def last_lines(self) -> str:
        """Return the end of the log, for an error message."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


def launched(command: Sequence[str | Path], run_as: RunAs | None = None) -> list[str]:
    """Return the command line that runs the command under the launcher of this room."""
    user, reach = (run_as.user, "1" if run_as.reach else "0") if run_as else ("-", "0")
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), user, reach]
    return launcher + [str(part) for part in command]
