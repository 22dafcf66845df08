"""Workers that are killed, and services that are: what goes on, and what is left."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psycopg

from app.localdev.kafka import LocalKafka
from tests.integration.workers.conftest import WORKERS, Workers, is_alive
from tests.testkit.kafka import unique
from tests.testkit.outages import change, until
from tests.testkit.service import STARTS_WITHIN_S

ENDED = {"applied", "not_applied", "refused"}


class Load:
    """Callers that alter one user each, again and again; and how many alterations succeeded."""

    def __init__(self, workers: Workers, names: list[str]) -> None:
        self._workers = workers
        self._names = names
        self._stop = threading.Event()
        self.done = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(len(self._names)) as pool:
            callers = [pool.submit(self._call, name) for name in self._names]
            try:
                yield
            finally:
                self._stop.set()
        for caller in callers:
            caller.result()

    def _call(self, name: str) -> None:
        value = 1000
        while not self._stop.is_set():
            value += 1
            body = change(name, value, wait="none")
            try:
                answer = self._workers.request("POST", "/quotas/alterations", json=body)
            except httpx.TransportError:
                continue
            assert answer.status_code in {200, 409, 503, 504}, answer.text
            self.done += answer.status_code == 200


def owners(workers: Workers) -> list[int]:
    """Return the processes that hold entities in the log, such as ``host/4711/…``."""
    with psycopg.connect(workers.owner_url) as connection:
        rows = connection.execute(
            "select owner from quota_entity where alteration_id is not null"
        ).fetchall()
    return [int(owner.split("/")[1]) for (owner,) in rows]


def outcomes(workers: Workers, name: str) -> set[str]:
    path = f"/audit?entity=user={name}&page_size=1000"
    rows = workers.request("GET", path).json()["rows"]
    assert rows
    return {row["outcome"] for row in rows}


def an_owner_held_up(workers: Workers, broker: LocalKafka) -> int:
    """Pause the broker while an alteration is under way; return the worker that waits for it."""
    found: list[int] = []

    def is_held_up() -> bool:
        broker.pause()
        found.extend(owners(workers))
        if not found:
            broker.resume()
        return found != []

    until(is_held_up, "no alteration is under way")
    return found[0]


def test_a_worker_that_is_killed_under_load_comes_back_and_nothing_is_left_open(
    pair: Workers, broker: LocalKafka
) -> None:
    names, served = [unique("load") for _ in range(6)], pair.served()
    load = Load(pair, names)
    with load.running():
        until(lambda: load.done > 10, "nothing is altered")
        killed = an_owner_held_up(pair, broker)
        try:
            assert killed in pair.pids()
            os.kill(killed, signal.SIGKILL)
        finally:
            broker.resume()
        so_far = load.done
        until(lambda: load.done > so_far + 10, "requests do not go on")
        until(lambda: pair.served() == served + 1, "the worker does not come back", STARTS_WITHIN_S)
    assert killed not in pair.pids()
    until(lambda: owners(pair) == [], "entities are still held")
    for name in names:
        assert outcomes(pair, name) <= ENDED
    ended = [line["event"] for line in pair.lines() if f"(process {killed})" in line["event"]]
    assert len(ended) == 1
    assert "ended by SIGKILL; the next one starts now" in ended[0]


def test_a_stop_leaves_no_process_and_so_does_the_end_of_the_parent(stoppable: Workers) -> None:
    pids = stoppable.pids()
    assert len(pids) == WORKERS
    assert stoppable.request("GET", "/quotas").status_code == 200
    assert stoppable.service.stop(signal.SIGTERM) == 0
    assert not any(map(is_alive, pids))
    lines = stoppable.lines()
    ended = {line["worker"] for line in lines if line["event"] == "Application shutdown complete."}
    assert ended == {1, 2}
    stoppable.service.start()
    until(lambda: stoppable.served() == 2 * WORKERS, "a worker is missing", STARTS_WITHIN_S)
    pids = stoppable.pids()
    assert stoppable.service.stop(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: not any(map(is_alive, pids)), "a worker goes on without its parent")
    assert "Traceback" not in stoppable.service.log_path.read_text()
