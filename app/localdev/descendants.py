"""The processes below a process, from /proc or, where there is none, from ps."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_POLL_S = 0.01
_ENDED = "Z"
_HALTED = "T"


class _Process(NamedTuple):
    pid: int
    parent: int
    state: str


def descendants_of(pid: int) -> list[int]:
    """Return the process ids of the children of a process, and of theirs."""
    children: dict[int, list[int]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def wait_until_ended(pids: Sequence[int], deadline_s: float) -> None:
    """Return when none of the processes runs any more, or at the deadline."""
    _wait_for(pids, _ENDED, deadline_s)


def wait_until_halted(pids: Sequence[int], deadline_s: float) -> None:
    """Return when each of the processes is halted or has ended, or at the deadline."""
    _wait_for(pids, _HALTED + _ENDED, deadline_s)


def _wait_for(pids: Sequence[int], states: str, deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end and any(
        process.pid in pids and process.state[0] not in states for process in _processes()
    ):
        time.sleep(_POLL_S)


def _processes() -> Iterator[_Process]:
    return _from_proc() if (_PROC / "self" / "stat").exists() else _from_ps()


def _from_proc() -> Iterator[_Process]:
    for folder in _PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(errors="replace")
        except OSError:
            continue  # it ended while we looked
        # The second field is the name in brackets; it may hold blanks and brackets itself.
        state, parent = stat.rpartition(")")[2].split()[:2]
        yield _Process(int(folder.name), int(parent), state)


def _from_ps() -> Iterator[_Process]:
    command = ["ps", "-axo", "pid=,ppid=,stat="]
    table = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in table.stdout.splitlines():
        pid, parent, state = line.split()
        yield _Process(int(pid), int(parent), state)
