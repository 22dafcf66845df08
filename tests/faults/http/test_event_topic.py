"""The topic of events: whatever dies, each event is in it, in the order of its entity."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.documents import ROOT
from tests.testkit.event_loops import Silent, served
from tests.testkit.event_topics import (
    EventRecord,
    LoggedEntity,
    check_order,
    create_topic,
    read_log,
    read_topic,
)
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.history.checker import note_figures
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, alter, ask, change, outage
from tests.testkit.patience import PROMPT, wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, new_address, running_service
from tests.testkit.sizes import SEED, size

ROUNDS = size(1, 12)
USERS = tuple(f"user-{number}" for number in range(4))


class Watched:
    """A service on a cluster of its own, whose topic is at a real broker."""

    def __init__(self, service: RunningService, kafka: LocalKafka, topic: str) -> None:
        self.service = service
        self.kafka = kafka
        self.topic = topic
        self.logged: Sequence[LoggedEntity] = ()
        self.records: Sequence[EventRecord] = ()

    def is_whole(self) -> bool:
        """Tell whether the topic has all that the log had just before."""
        self.logged = read_log(self.service.environ["QUOTAS_DATABASE_URL"])
        self.records = read_topic(self.kafka.bootstrap_servers, self.topic)
        return not {event.id for event in self.logged} - {record.id for record in self.records}

    def count(self, metric: str) -> float:
        text = ask(self.service, "GET", "/metrics").text
        start = f'{metric}{{cluster="default"}} '
        (line,) = [line for line in text.splitlines() if line.startswith(start)]
        return float(line.split()[1])


@pytest.fixture
def watched(
    fake_kafka: FakeCluster, kafka: LocalKafka, database: LocalPostgres, tmp_path: Path
) -> Iterator[Watched]:
    _, url = migrated_database(database, unique("events").replace("-", "_"))
    topic = unique("events")
    options = {
        "events_topic": topic,
        "events_bootstrap_servers": kafka.bootstrap_servers,
        "test_final_after_s": "1",
        "patience": PROMPT,
    }
    with running_service(tmp_path, fake_kafka.bootstrap_servers, url, **options) as service:
        yield Watched(service, kafka, topic)


def test_a_topic_that_is_missing_or_away_holds_up_nothing_but_itself(watched: Watched):
    service, servers = watched.service, watched.kafka.bootstrap_servers
    wait_until(lambda: watched.count("quota_events_failures_total") > 1, "no failure is counted")
    assert alter(service, "alice", reason="é").status_code == httpx.codes.OK
    assert ask(service, "GET", "/readyz?for=write").status_code == httpx.codes.OK
    wait_until(lambda: watched.count("quota_events_behind") == 2, "no event is missing")
    assert watched.count("quota_events_behind_seconds") > 0
    lines = [line for line in service.lines() if "does not exist" in line["event"]]
    assert len(lines) == 1
    assert f"The topic {watched.topic} does not exist at {servers}: create it" in lines[0]["event"]
    create_topic(servers, watched.topic)
    wait_until(watched.is_whole, "the topic does not heal")
    with outage(watched.kafka, "killed"):
        assert alter(service, "alice").status_code == httpx.codes.OK
        assert ask(service, "GET", "/readyz").status_code == httpx.codes.OK
    wait_until(watched.is_whole, "the broker does not come back")
    check_order(watched.logged, watched.records)
    wait_until(lambda: watched.count("quota_events_behind") == 0, "it is still behind")
    intent, outcome, *_ = watched.records
    (row,) = ask(service, "GET", "/audit?page_size=1", principal="auditor").json()["rows"][-1:]
    cluster_id, alteration_id = row["cluster_id"], intent.row["alteration_id"]
    assert outcome.headers.pop("ce_time") >= intent.headers.pop("ce_time") >= intent.row["at"]
    assert outcome.headers == {
        "ce_specversion": "1.0",
        "ce_id": f"{alteration_id}/1/0",
        "ce_type": "kafka.quota.alteration.outcome",
        "ce_source": f"/clusters/{cluster_id}",
        "content-type": "application/json",
    }
    assert intent.headers["ce_type"] == "kafka.quota.alteration.intent"
    assert (intent.key, intent.row["outcome"], outcome.row["outcome"]) == (
        '{"user":"alice"}',
        "unknown",
        "applied",
    )
    assert outcome.row["reason"] == "é"
    with chat() as (posted, webhook), consumer_of_the_page(watched, webhook):
        wait_until(lambda: len(posted) >= 2, "the consumer of docs/events.md posts nothing")
    assert posted[0] == {"text": 'User:alice alter {"user": "alice"}: applied. é'}


@contextmanager
def chat() -> Iterator[tuple[list[Any], str]]:
    """Take messages as a chat does; yield what has come, and the address."""
    posted: list[Any] = []

    class Webhook(Silent, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

    with served(Webhook) as url:
        yield posted, url


@contextmanager
def consumer_of_the_page(watched: Watched, webhook: str) -> Iterator[None]:
    """Run the consumer that docs/events.md shows."""
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    environ = {
        "BOOTSTRAP": watched.kafka.bootstrap_servers,
        "TOPIC": watched.topic,
        "WEBHOOK": webhook,
    }
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | environ) as process:
        try:
            yield
        finally:
            process.kill()


def test_kills_of_service_broker_and_postgres_lose_no_event(
    watched: Watched, database: LocalPostgres
):
    create_topic(watched.kafka.bootstrap_servers, watched.topic)
    seed, enough = random.Random(SEED), Event()

    def restart() -> None:
        watched.service.kill()
        watched.service.start()

    def bounce(server: LocalKafka | LocalPostgres) -> Callable[[], None]:
        def kill() -> None:
            with outage(server, "killed"):
                pass

        return kill

    faults = [restart, bounce(watched.kafka), bounce(database)]
    with ThreadPoolExecutor(len(USERS)) as pool:
        writers = [pool.submit(write, watched.service, user, enough) for user in USERS]
        try:
            for _ in range(ROUNDS):
                for fault in seed.sample(faults, len(faults)):
                    begun = len(read_log(watched.service.environ["QUOTAS_DATABASE_URL"]))
                    fault()
                    wait_until(lambda begun=begun: progress(watched) > begun + 20, "no progress")
        finally:
            enough.set()
        done = sum(writer.result() for writer in writers)
    wait_until(lambda: watched.count("quota_open_intents") == 0, "an intent stays open")
    wait_until(watched.is_whole, "an event is missing")
    repeats = check_order(watched.logged, watched.records)
    assert done > 0
    note_figures({"alterations": done, "events": len(watched.logged), "repeats": repeats})


def progress(watched: Watched) -> int:
    return len(read_log(watched.service.environ["QUOTAS_DATABASE_URL"]))


def write(service: RunningService, user: str, enough: Event) -> int:
    """Alter an entity until it is enough, whatever becomes of it; return how often it was done."""
    done, api = 0, service.api(host=new_address())
    while not enough.is_set():
        with suppress(httpx.TransportError):
            body = change(user, 1 + done, wait="none")
            done += api.post(ALTERATIONS, json=body).status_code == httpx.codes.OK
    return done
