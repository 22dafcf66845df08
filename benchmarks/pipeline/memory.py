"""The peak of what a process and those that it starts have in memory, by program."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_LOOK_S: Final = 0.5
_PAGE: Final = 4096


class PeakMemory:
    """Watches the descendants of a process for the length of a block.

    Attributes:
        peaks: The largest sum of resident bytes: ``java``, ``python`` and ``all``.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peaks = {"java": 0, "python": 0, "all": 0}

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            now = {"java": 0, "python": 0, "all": 0}
            for name, resident in _family(self._pid):
                kind = "java" if name == "java" else "python"
                now[kind] += resident
                now["all"] += resident
            self.peaks = {kind: max(peak, now[kind]) for kind, peak in self.peaks.items()}


def _family(pid: int) -> Iterator[tuple[str, int]]:
    """Return program and resident bytes of a process and its descendants; shared pages count."""
    processes = dict(_processes())
    family = {pid}
    while more := {key for key, (parent, *_) in processes.items() if parent in family} - family:
        family |= more
    for key in family & processes.keys():
        _, name, resident = processes[key]
        yield name, resident


def _processes() -> Iterator[tuple[int, tuple[int, str, int]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            resident = int((folder / "statm").read_text().split()[1]) * _PAGE
            yield int(folder.name), (int(rest.split()[1]), name, resident)
