"""Two workers: each is a replica, pages go on at either, and one that is killed comes back."""

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.integration.http.service_calls import P, pages
from tests.testkit.kafka import unique
from tests.testkit.outages import change
from tests.testkit.patience import PROMPT, wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import RawQuotas, entity_of, setting
from tests.testkit.service import (
    PLAIN_HTTP,
    STARTS_WITHIN_S,
    RunningService,
    from_the_command_line,
    running_service,
)

WORKERS = 2
ENDED = {"applied", "not_applied", "refused"}
ENTITIES = 60
GROWING = re.compile(r"(?!process_)\w+(_total|_count|_sum|_bucket)(\{|$)")
HEADERS = {"Authorization": "Bearer root"}


@dataclass
class Workers:
    """A running service; ``api`` sends every request over a connection of its own."""

    service: RunningService
    owner_url: str
    api: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        self.api = httpx.Client(
            base_url=self.service.url, headers=HEADERS, timeout=30, verify=PLAIN_HTTP, limits=limits
        )

    def pids(self) -> list[int]:
        """Return the processes of the workers."""
        return [self.pid_of(number + 1) for number in range(WORKERS)]

    def pid_of(self, worker: int) -> int:
        """Return the process that is a worker now."""
        events = [line["event"] for line in self.service.lines()]
        (*_, latest) = [event for event in events if event.startswith(f"worker {worker} serves")]
        return int(latest.rpartition(" ")[2])

    def close(self) -> None:
        """Kill what is left of a service whose parent a test has killed."""
        self.api.close()
        assert self.service.process is not None
        if self.service.process.poll() is None:
            return
        for pid in self.service.served():
            if is_alive(pid) and Path(f"/proc/{pid}/fd/1").readlink() == self.service.log_path:
                os.kill(pid, signal.SIGKILL)

    def wait_until_served(self, number: int) -> None:
        """Wait until workers have begun to serve so often."""
        what = f"{number} workers have not served"
        wait_until(lambda: len(self.service.served()) >= number, what, STARTS_WITHIN_S)


def is_alive(pid: int) -> bool:
    """Tell whether a process has not ended; one that nobody has waited for yet has."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def pair(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    """Two workers, of which tests kill some; the last test ends them all."""
    owner_url, service_url = migrated_database(postgres, "workers")
    more = {"workers": str(WORKERS), "test_final_after_s": "1"}
    folder, brokers = tmp_path_factory.mktemp("workers"), broker.bootstrap_servers
    with (
        running_service(folder, brokers, service_url, patience=PROMPT, **more) as running,
        closing(Workers(running, owner_url)) as workers,
    ):
        workers.wait_until_served(WORKERS)
        yield workers


@pytest.fixture(scope="module")
def team(broker: LocalKafka) -> Iterator[str]:
    """The beginning of the names of 60 users."""
    prefix = unique("paged")
    names = [f"{prefix}-{number}" for number in range(ENTITIES)]
    with RawQuotas(broker.bootstrap_servers) as raw:
        raw.alter(*(setting({"user": name}, {P: 5.0}) for name in names))
        wait_until(lambda: entity_of({"user": names[-1]}) in raw.everything())
        yield prefix
        raw.alter(*(setting({"user": name}, {P: None}) for name in names))


def test_pages_over_new_connections_show_each_entity_once(pair: Workers, team: str) -> None:
    asked = 0
    while asked < 3 or len(answered(pair, "/quotas")) < 2:
        assert asked < 50, "one worker accepts every connection"
        listed = pages(pair.api, "/quotas", filter=f"user^={team}", page_size=4)
        users = [quota["entity"]["user"] for page in listed for quota in page["quotas"]]
        assert users == sorted(f"{team}-{number}" for number in range(ENTITIES))
        asked += 1


def answered(pair: Workers, route: str) -> Counter[int]:
    """Return how many requests each worker has answered, as far as they are logged yet."""
    return Counter(line["worker"] for line in pair.service.lines() if line.get("route") == route)


def test_keep_alive_connections_are_dealt_out_to_both(pair: Workers) -> None:
    with ExitStack() as stack:
        for _ in range(24):
            client = httpx.Client(base_url=pair.service.url, timeout=30, verify=PLAIN_HTTP)
            assert stack.enter_context(client).get("/version").status_code == 200
    wait_until(lambda: answered(pair, "/version").total() == 24, "an answer is not logged")
    assert set(answered(pair, "/version")) == {1, 2}


def kill(pid: int) -> None:
    """Kill a worker, and wait until no connection can come to it any more.

    Its socket is closed with the last of its threads. Only then its parent may wait for it, and it
    is gone; until then it may look ended already.
    """
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the worker does not end")


def counters(pair: Workers) -> Mapping[str, float]:
    lines = pair.api.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if GROWING.match(line))
    return {name: float(value) for name, value in pairs}


LIVEZ = 'http_server_request_duration_seconds_count{method="GET",route="/livez",status="200"}'


def test_counters_never_go_back_not_even_when_a_worker_is_killed(pair: Workers) -> None:
    assert pair.api.get("/livez").status_code == 200
    before, served = counters(pair), len(pair.service.served())
    began = before[LIVEZ]
    for number in range(6):
        assert pair.api.get("/livez").status_code == 200
        now = counters(pair)
        assert [name for name, at in before.items() if now.get(name, -1.0) < at] == []
        assert now[LIVEZ] == began + number + 1
        before = now
        if number == 2:
            kill(pair.pid_of(1))
    pair.wait_until_served(served + 1)
    gauges = pair.api.get("/metrics").text
    assert gauges.count("\nprocess_open_fds{") == 2
    assert gauges.count("\nhttp_server_active_requests ") == 1
    assert sorted(re.findall(r'^policy_rules\{worker="(\d)"\}', gauges, re.MULTILINE)) == ["1", "2"]


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
                answer = self._workers.api.post("/quotas/alterations", json=body)
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
    rows = workers.api.get(path).json()["rows"]
    assert rows
    return {row["outcome"] for row in rows}


def an_owner_held_up(workers: Workers, broker: LocalKafka) -> int:
    """Pause the broker while an alteration is in flight; return the worker that waits for it."""
    found: list[int] = []

    def is_held_up() -> bool:
        broker.pause()
        found.extend(owners(workers))
        if not found:
            broker.resume()
        return found != []

    wait_until(is_held_up, "no alteration is in flight")
    return found[0]


def test_a_worker_that_is_killed_under_load_comes_back_and_nothing_is_left_open(
    pair: Workers, broker: LocalKafka
) -> None:
    names, served = [unique("load") for _ in range(6)], len(pair.service.served())
    load = Load(pair, names)
    with load.running():
        wait_until(lambda: load.done > 10, "nothing is altered")
        killed = an_owner_held_up(pair, broker)
        try:
            assert killed in pair.pids()
            os.kill(killed, signal.SIGKILL)
        finally:
            broker.resume()
        so_far = load.done
        wait_until(lambda: load.done > so_far + 10, "requests do not go on")
        pair.wait_until_served(served + 1)
    assert killed not in pair.pids()
    wait_until(lambda: owners(pair) == [], "entities are still held")
    for name in names:
        assert outcomes(pair, name) <= ENDED
    ended = [
        line["event"] for line in pair.service.lines() if f"(process {killed})" in line["event"]
    ]
    assert len(ended) == 1
    assert "ended by SIGKILL; the next one starts now" in ended[0]


def test_a_stop_leaves_no_process_and_so_does_the_end_of_the_parent(pair: Workers) -> None:
    pids, lines_before = pair.pids(), len(pair.service.lines())
    served = len(pair.service.served())
    assert len(pids) == WORKERS
    assert pair.api.get("/quotas").status_code == 200
    assert pair.service.stop(signal.SIGTERM) == 0
    assert not any(map(is_alive, pids))
    lines = pair.service.lines()[lines_before:]
    ended = {line["worker"] for line in lines if line["event"] == "Application shutdown complete."}
    assert ended == {1, 2}
    pair.service.launch = from_the_command_line  # which spawns its workers
    pair.service.start()
    pair.wait_until_served(served + WORKERS)
    pids = pair.pids()
    assert pair.service.stop(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: not any(map(is_alive, pids)), "a worker goes on without its parent")
    assert not any("Traceback" in str(line) for line in pair.service.lines()[lines_before:])
