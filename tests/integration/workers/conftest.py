"""A service of two workers, with a database of its own on the broker of the run."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.kafka import unique
from tests.testkit.outages import until
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import migrated_database
from tests.testkit.service import STARTS_WITHIN_S, RunningService, running_service

WORKERS = 2
HEADERS = {"Authorization": "Bearer root"}


@dataclass
class Workers:
    """A running service; every request is sent over a connection of its own."""

    service: RunningService
    owner_url: str

    @property
    def parent(self) -> int:
        assert self.service.process is not None
        return self.service.process.pid

    def pids(self) -> list[int]:
        """Return the processes of the workers."""
        return [self.pid_of(number + 1) for number in range(WORKERS)]

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return httpx.request(
            method, f"{self.service.url}{path}", headers=HEADERS, timeout=30, **options
        )

    def lines(self) -> list[dict[str, Any]]:
        """Return what was logged; the last line may not be whole yet."""
        text = self.service.log_path.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def served(self) -> int:
        """Return how often a worker has begun to serve."""
        return sum("serves: process" in line["event"] for line in self.lines())

    def all_pids(self) -> list[int]:
        """Return the processes of all workers that have ever served."""
        told = (re.search(r"serves: process (\d+)", line["event"]) for line in self.lines())
        return [int(match[1]) for match in told if match]

    def pid_of(self, worker: int) -> int:
        """Return the process that is a worker now."""
        events = [line["event"] for line in self.lines()]
        (*_, latest) = [event for event in events if event.startswith(f"worker {worker} serves")]
        return int(latest.rpartition(" ")[2])

    def close(self) -> None:
        """Kill what is left of a service whose parent a test has killed."""
        assert self.service.process is not None
        if self.service.process.poll() is None:
            return
        for pid in self.all_pids():
            if is_alive(pid) and Path(f"/proc/{pid}/fd/1").readlink() == self.service.log_path:
                os.kill(pid, signal.SIGKILL)

    def wait_until_all_serve(self) -> None:
        until(lambda: self.served() >= WORKERS, "a worker does not serve", STARTS_WITHIN_S)


def is_alive(pid: int) -> bool:
    """Tell whether a process has not ended; one that nobody has waited for yet has."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def two_workers(
    folder: Path, broker: LocalKafka, postgres: LocalPostgres, **more: str
) -> Iterator[Workers]:
    """Serve until the block ends; no worker is left after it."""
    owner_url, service_url = migrated_database(postgres, unique("workers").replace("-", "_"))
    settings = {"workers": str(WORKERS), "test_final_after_s": "1", **more}
    with (
        running_service(
            folder, broker.bootstrap_servers, service_url, patience=PROMPT, **settings
        ) as running,
        closing(Workers(running, owner_url)) as workers,
    ):
        workers.wait_until_all_serve()
        yield workers


@pytest.fixture(scope="package")
def pair(
    broker: LocalKafka,
    postgres: LocalPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workers]:
    """Two workers for the tests of this folder, which may kill one of them."""
    with two_workers(tmp_path_factory.mktemp("workers"), broker, postgres) as workers:
        yield workers


@pytest.fixture
def stoppable(broker: LocalKafka, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Workers]:
    """Two workers that a test may stop."""
    with two_workers(tmp_path, broker, postgres) as workers:
        yield workers
