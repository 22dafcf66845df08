"""Processes that die with their parent however it dies, descendants, and free ports."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from app.localdev.local_directory import LocalDevError

_LAUNCHER = Path(__file__).with_name("pdeathsig.py")
_TAIL_LINES = 15
_PORT_TAKEN = b"Address already in use"
_STARTS = 3
_READY_DEADLINE_S = 60.0
_POLL_S = 0.01

# Linux sends the parent-death signal when the *thread* that forked ends. This one ends with us.
_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="spawner")


@dataclass(frozen=True)
class RunAs:
    """The account of a child: its name, and whether it must pass directories closed to it."""

    user: str
    reach: bool


class ManagedProcess:
    """One running program, its output in a file."""

    stop_signal = signal.SIGTERM

    def __init__(self, name: str, log_path: Path) -> None:
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

    def spawn(
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

    def bring_up(self, launch: Callable[[], Callable[[], bool]]) -> None:
        """Start the program and return when it is ready; again where its port was taken meanwhile.

        Args:
            launch: Chooses free ports, calls `spawn`, and returns a function that asks whether
                the program answers.
        """
        for _ in range(_STARTS):
            if self._becomes(launch()):
                return
            last_lines = self.last_lines()
            self.kill()
            if not self._lacks_port():
                break
        raise LocalDevError(f"{self.name} did not come up; its log ends:\n{last_lines}")

    def _becomes(self, is_ready: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + _READY_DEADLINE_S
        while time.monotonic() < deadline and self.is_running():
            if is_ready():
                return True
            time.sleep(_POLL_S)
        return False

    def is_running(self) -> bool:
        """Tell whether the program was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def stop(self, deadline_s: float = 30.0) -> None:
        """Ask the program to end, wait, and kill it when it does not."""
        if self._process is None:
            return
        self.resume()
        self.send(self.stop_signal)
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the program, as a power cut would, and wait until it is gone."""
        if self._process is not None:
            self.send(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Halt the program; return when each of its threads stands still.

        Its connections stay open and nothing answers.
        """
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

    def _lacks_port(self) -> bool:
        with self.log_path.open("rb") as log:
            log.seek(self._logged_before)
            return _PORT_TAKEN in log.read()

    def last_lines(self) -> str:
        """Return the end of the log, for an error message."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


class LocalServer(ManagedProcess, ABC):
    """A server of this machine; in a with statement it runs inside the block."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Start the server and return when it answers."""


def launched(command: Sequence[str | Path], run_as: RunAs | None = None) -> list[str]:
    """Return the command line that runs the command under ``pdeathsig.py``."""
    user, reach = (run_as.user, "1" if run_as.reach else "0") if run_as else ("-", "0")
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), user, reach]
    return launcher + [str(argument) for argument in command]


def run_to_end(
    command: Sequence[str | Path],
    environ: Mapping[str, str],
    *,
    directory: str | None = None,
    deadline_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program without input; both of its streams are in `stdout`."""
    return subprocess.run(
        command,
        cwd=directory,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline_s,
        check=False,
    )


def descendants_of(pid: int) -> list[int]:
    """Return the process ids of the children of a process, and of theirs."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def wait_until_ended(pids: Sequence[int], deadline_s: float) -> None:
    """Return when none of the processes runs any more, or at the deadline."""
    _wait_for(pids, {psutil.STATUS_ZOMBIE}, deadline_s)


def wait_until_halted(pids: Sequence[int], deadline_s: float) -> None:
    """Return when each of the processes is halted or has ended, or at the deadline."""
    _wait_for(pids, {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}, deadline_s)


def _wait_for(pids: Sequence[int], states: Collection[str], deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end and any(_state_of(pid) not in states for pid in pids):
        time.sleep(_POLL_S)


def _state_of(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_ZOMBIE)


_BLOCKED = re.compile(r"^SigBlk:\s*([0-9a-f]+)$", re.MULTILINE)
_INTERRUPT = 1 << (signal.SIGINT - 1)


class ParentMake:
    """Watches a `make` that started us, so that stopping it stops us.

    A Ctrl-C reaches us as well as make. A SIGINT for make alone leaves it in its signal handler,
    where SIGINT is blocked, until we end; a make that is killed leaves us behind.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Look whether make started us: then `MAKELEVEL` is set."""
        self._pid = os.getppid() if "MAKELEVEL" in environ else None
        # Some parents have SIGINT blocked all the time, which tells us nothing.
        self._took_interrupts = self._pid is not None and not _blocks_interrupts(self._pid)
        self._blocked_before = False

    def wants_us_to_stop(self) -> bool:
        """Tell whether make was interrupted or has gone; never without make.

        An interrupt must be there at two looks in a row: starting a process blocks signals for an
        instant.
        """
        if self._pid is None:
            return False
        if os.getppid() != self._pid:
            return True
        blocked = _blocks_interrupts(self._pid)
        self._took_interrupts |= not blocked
        stays_blocked, self._blocked_before = blocked and self._blocked_before, blocked
        return stays_blocked and self._took_interrupts


def _blocks_interrupts(pid: int) -> bool:
    try:
        found = _BLOCKED.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return False
    return found is not None and bool(int(found.group(1), 16) & _INTERRUPT)


HOST = "127.0.0.1"

_LOWEST = 15000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 500


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port now."""
    return listening_error(HOST, port) is None


def listening_error(host: str, port: int) -> str | None:
    """Return why a server could not listen on the port now, or null."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return None


def free_ports(count: int) -> list[int]:
    """Return distinct free ports below those that the system gives to outgoing connections.

    A port from that range could be taken, even by a client that is waiting for the very server,
    while the server restarts.
    """
    found: set[int] = set()
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, _first_ephemeral())  # noqa: S311 - no secret
        if port not in found and is_free(port):
            found.add(port)
        if len(found) == count:
            return list(found)
    raise LocalDevError("No free TCP ports were found: stop some servers of this machine.")


def _first_ephemeral() -> int:
    lowest = int(_RANGE_FILE.read_text().split()[0]) if _RANGE_FILE.exists() else 32768
    return lowest if lowest > _LOWEST + 1000 else 65536
