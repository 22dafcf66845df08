"""Fifty fake clusters behind one service: what happens to some of them is nothing to the others.

A figure is printed for what has no bound: how long the others take, what an idle service costs.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import psycopg
import pytest

from app.domain.authorization import AclBinding
from app.domain.entities import ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from app.localdev.processes import free_ports
from tests.testkit.clusters import of_clusters
from tests.testkit.event_loops import in_a_thread
from tests.testkit.fake_kafka.cluster import FakeCluster, Patience
from tests.testkit.patience import PROMPT, wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

pytestmark = pytest.mark.long

CLUSTERS: Final = size(6, 50)
ENTITIES: Final = size(50, 1000)
AWAY: Final = size(2, 10)
ROUNDS: Final = size(5, 60)
IDLE_S: Final = size(1.0, 20.0)
KEY: Final = "producer_byte_rate"
PAUSED, KILLED, CHANGED = "c0", "c1", "c2"


@asynccontextmanager
async def fake_clusters(number: int) -> Any:
    """Run that many fake clusters of one broker in one event loop."""
    clusters = [FakeCluster(1, Patience(30.0, 60.0)) for _ in range(number)]
    try:
        yield clusters
    finally:
        await asyncio.gather(*(cluster.close() for cluster in clusters))


@dataclass
class World:
    """A service of all clusters, of which the last ``AWAY`` names are nobody's."""

    service: RunningService
    clusters: Mapping[str, FakeCluster]
    entries: Mapping[str, Mapping[str, Any]]
    url: str

    def api(self) -> httpx.Client:
        return self.service.api("alice")

    def state(self) -> dict[str, dict[str, Any]]:
        listed = self.api().get("/clusters").json()["clusters"]
        return {each["name"]: each for each in listed}

    def alter(self, name: str, user: str, value: int) -> httpx.Response:
        op = {"key": KEY, "value": value}
        body = {"alterations": [{"entity": {"user": user}, "ops": [op]}]}
        return self.api().post(f"/clusters/{name}/quotas/alterations", json=body, timeout=90)


@pytest.fixture(scope="module")
def world(database: LocalPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    _, url = migrated_database(database, "fifty_clusters")
    with ExitStack() as stack:
        running = stack.enter_context(in_a_thread(lambda: fake_clusters(CLUSTERS)))
        clusters = {f"c{number}": cluster for number, cluster in enumerate(running)}
        for name, cluster in clusters.items():
            cluster.cluster_id = f"id-of-{name}"
            cluster.acls = [
                AclBinding("kafka-cluster", "LITERAL", "User:alice", "*", "ALTER_CONFIGS", "ALLOW")
            ]
            for number in range(ENTITIES):
                cluster.store(ClientQuotaEntity.of({"user": f"{name}-{number}"}), {KEY: 1000.0})
        entries = {
            name: {"bootstrap_servers": cluster.bootstrap_servers, "auditors": ["User:auditor"]}
            for name, cluster in clusters.items()
        }
        folder = tmp_path_factory.mktemp("fifty")
        service = of_clusters(folder, url, entries, patience=PROMPT)
        stack.callback(service.close)
        service.start()
        made = World(service, clusters, entries, url)
        wait_until(lambda: all(each["ready"] for each in made.state().values()))
        yield made


def medians_ms(world: World, names: list[str]) -> dict[str, float]:
    """Alter and resolve on each of these by turns; return the median of each kind."""
    took: dict[str, list[float]] = {"alter": [], "resolve": []}
    for number in range(ROUNDS):
        for name in names:
            began = time.perf_counter()
            assert world.alter(name, f"user-of-{name}", number + 1).status_code == 200
            altered = time.perf_counter()
            resolved = world.api().get(f"/clusters/{name}/quotas/resolve?user=a&client-id=b")
            assert resolved.status_code == 200
            took["alter"].append(altered - began)
            took["resolve"].append(time.perf_counter() - altered)
    return {kind: round(statistics.median(each) * 1000, 2) for kind, each in took.items()}


def trouble(world: World) -> None:
    world.clusters[PAUSED].freeze(1)
    world.clusters[KILLED].kill(1)
    world.clusters[CHANGED].cluster_id = "another-id"
    world.clusters[CHANGED].hang_up(1)


def end_of_trouble(world: World) -> None:
    world.clusters[PAUSED].thaw(1)
    world.clusters[KILLED].start(1)
    world.clusters[CHANGED].cluster_id = f"id-of-{CHANGED}"
    world.clusters[CHANGED].hang_up(1)


def test_the_others_go_on_while_one_is_paused_one_killed_and_one_is_another(world: World):
    others = [name for name in world.clusters if name not in (PAUSED, KILLED, CHANGED)][:3]
    before = medians_ms(world, others)
    trouble(world)
    with ExitStack() as stack:
        stack.callback(end_of_trouble, world)
        wait_until(
            lambda: not any(world.state()[name]["ready"] for name in (PAUSED, KILLED, CHANGED))
        )
        during = medians_ms(world, others)
        answers = {name: world.alter(name, "in-trouble", 1) for name in (PAUSED, KILLED, CHANGED)}
        assert {name: answer.status_code in (503, 504) for name, answer in answers.items()} == {
            PAUSED: True,
            KILLED: True,
            CHANGED: True,
        }
        assert answers[CHANGED].json()["code"] == "wrong-cluster"
        assert world.api().get("/readyz").status_code == 200
    wait_until(lambda: all(each["ready"] for each in world.state().values()), within_s=120)
    print(f"medians in ms of {CLUSTERS} clusters: before {before}, in trouble {during}")
    with psycopg.connect(world.url) as connection:
        rows = connection.execute(
            "select distinct cluster_id, entity->>'user' from audit_log where entity is not null"
        ).fetchall()
    own = {(f"id-of-{name}", f"user-of-{name}") for name in others}
    assert own <= set(rows)
    assert {user for _, user in set(rows) - own} <= {"in-trouble"}


def test_an_idle_service_and_what_its_clusters_take(world: World):
    for name in world.clusters:
        assert world.api().get(f"/clusters/{name}/quotas/resolve?user=a").status_code == 200
    assert world.service.process is not None
    process = psutil.Process(world.service.process.pid)
    before = process.cpu_times()
    time.sleep(IDLE_S)
    after = process.cpu_times()
    cpu = (after.user + after.system - before.user - before.system) / IDLE_S
    rss = process.memory_info().rss / 2**20
    text = f"{CLUSTERS} clusters of {ENTITIES} entities: {rss:.0f} MiB, {cpu:.1%} of a core idle"
    began = time.perf_counter()
    body = world.api().get("/metrics").content
    took = time.perf_counter() - began
    print(f"{text}; /metrics {len(body) / 2**20:.1f} MiB in {took * 1000:.0f} ms")


def test_a_service_starts_without_those_that_are_away_and_takes_each_as_it_comes(
    world: World, tmp_path: Path
):
    away = list(world.clusters)[-AWAY:]
    for name in away:
        world.clusters[name].kill(1, still_listed=True)
    (closed,) = free_ports(1)
    entries = {**world.entries, "nobody": {"bootstrap_servers": f"127.0.0.1:{closed}"}}
    began = time.perf_counter()
    service = of_clusters(tmp_path, world.url, entries, patience=PROMPT)
    try:
        service.start()
        started = time.perf_counter() - began
        second = World(service, world.clusters, entries, world.url)
        wait_until(
            lambda: sum(each["ready"] for each in second.state().values()) == CLUSTERS - AWAY
        )
        print(f"started without {AWAY} of {CLUSTERS} in {started:.2f} s")
        for name in away:
            assert not second.state()[name]["ready"]
            world.clusters[name].start(1)
            wait_until(lambda name=name: second.state()[name]["ready"])
    finally:
        with suppress(AssertionError):
            service.close()
        for name in away:
            if not world.clusters[name].listed:
                world.clusters[name].start(1)
