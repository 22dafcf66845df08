"""Processes of this machine, found by what /proc says of them."""

from pathlib import Path
from typing import Final

PARENT: Final = 1
GROUP: Final = 2
"""Fields of /proc/PID/stat after the name. Source: proc_pid_stat(5)."""


def processes(field: int, value: int) -> list[int]:
    """Return the processes that live and have this value there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if fields[0] != "Z" and int(fields[field]) == value:
            found.append(int(stat.parent.name))
    return found
