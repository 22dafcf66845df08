"""Processes of this machine, and the two commands as their users run them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from app.localdev.processes import ManagedProcess
from app.pipeline.main import main


def processes_of(group: int) -> list[int]:
    """Return the processes of a group that have not ended."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):  # it has just ended
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


DEADLINE_S = 120.0
"""Importing everything takes a second on an idle machine, and many on a busy one."""


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, environ: Mapping[str, str] = os.environ
) -> Iterator[ManagedProcess]:
    """Run a server for the length of a block; it ends with this process, however that ends."""
    child = ManagedProcess(log.stem, log)
    child.spawn(command, directory=log.parent, environ=environ)
    try:
        yield child
    finally:
        child.stop(DEADLINE_S)


def exit_code(arguments: list[str]) -> object:
    """Run the command in this process; a wrong value of an option ends it by itself."""
    try:
        return main(arguments)
    except SystemExit as ending:
        return ending.code
