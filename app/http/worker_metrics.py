"""Metrics of several workers: counted in files that all of them read, by ``prometheus_client``."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Metric,
    PlatformCollector,
    ProcessCollector,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Where the workers of one service count.

    Attributes:
        folder: Of all of them.
        number: Of this worker. Whoever takes its turn after its end counts on in its files, so no
            sum falls, and there are no more files than workers.
    """

    folder: Path
    number: int

    def begin(self) -> None:
        """Have every metric that is made from now on counted there."""
        os.environ[_FOLDER] = str(self.folder)
        values.ValueClass = values.MultiProcessValue(lambda: self.number)  # type: ignore[no-untyped-call]
        self.folder.joinpath(f"{self.number}.pid").write_text(str(os.getpid()))

    def registry(self) -> CollectorRegistry:
        """Return what shows the counts of all workers."""
        registry = CollectorRegistry()
        PlatformCollector(registry=registry)
        registry.register(_Counts(self.folder))
        registry.register(_Processes(self.folder))
        return registry


def forget_worker(folder: Path, number: int) -> None:
    """Take the gauges of a worker away that has ended; what it counted stays."""
    mark_process_dead(number, str(folder))  # type: ignore[no-untyped-call]
    folder.joinpath(f"{number}.pid").unlink(missing_ok=True)


class _Counts(Collector):
    """What the workers counted, added up; gauges that are each worker's have a label for it."""

    def __init__(self, folder: Path) -> None:
        self._of_all = MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        for metric in self._of_all.collect():  # type: ignore[no-untyped-call]
            metric.samples = [
                one._replace(labels={_renamed(name): value for name, value in one.labels.items()})
                for one in metric.samples
            ]
            yield metric


def _renamed(label: str) -> str:
    return "worker" if label == "pid" else label


class _Processes(Collector):
    """Memory, processor time and files of each worker's process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        found: dict[str, Metric] = {}
        for file in sorted(self._folder.glob("*.pid")):
            try:
                pid = int(file.read_text())
            except (FileNotFoundError, ValueError):
                continue  # it has just ended, or begins
            for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                into = found.setdefault(metric.name, metric)
                samples = [one._replace(labels={"worker": file.stem}) for one in metric.samples]
                into.samples = samples if into is metric else [*into.samples, *samples]
        return found.values()
