"""Rolling restarts under load: a balancer that asks ``/readyz`` loses no request."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import psycopg
import pytest

from app.localdev.postgres import LocalPostgres
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.history.checker import note_figures
from tests.testkit.kafka import unique
from tests.testkit.outages import DEADLINE_S, change
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

pytestmark = pytest.mark.long

RESTARTS = 200
CLIENTS = 8
EXIT_WITHIN_S = 30.0
ALICE = {"Authorization": "Bearer alice"}
_POLL_S = 0.05
_LEFT_TO_RECOVERY = "select count(*) from audit_event where event_type = 'recovery'"
_OPEN = "select count(alteration_id) from quota_entity"


@dataclass
class Balancer:
    """Sends each request to a replica that says it is ready, as one of clusters does."""

    replicas: list[RunningService]
    ready: list[RunningService] = field(default_factory=list)
    enough: bool = False
    statuses: dict[int, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    async def watch(self) -> None:
        async with httpx.AsyncClient(timeout=1.0) as http:
            while not self.enough:
                answers = await asyncio.gather(
                    *(is_ready(http, replica) for replica in self.replicas)
                )
                pairs = zip(self.replicas, answers, strict=True)
                self.ready = [replica for replica, ready in pairs if ready]
                await asyncio.sleep(_POLL_S)

    async def until_ready(self, number: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.ready) < number:
                await asyncio.sleep(_POLL_S)

    async def client(self) -> None:
        """Alter an entity of its own, and read it, as fast as the answers come."""
        name = unique("restarted")
        async with httpx.AsyncClient(headers=ALICE, timeout=DEADLINE_S) as http:
            for turn in count():
                if self.enough:
                    return
                replica = self.ready[turn % len(self.ready)]
                try:
                    answers = (
                        await http.post(
                            f"{replica.url}/quotas/alterations", json=change(name, wait="none")
                        ),
                        await http.get(f"{replica.url}/quotas/resolve?user={name}"),
                    )
                except httpx.TransportError as error:
                    self.broken.append(repr(error))
                    continue
                for answer in answers:
                    self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1


async def is_ready(http: httpx.AsyncClient, replica: RunningService) -> bool:
    try:
        answer = await http.get(f"{replica.url}/readyz")
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK


@pytest.fixture
def audit_url(database: LocalPostgres) -> tuple[str, str]:
    """A log of this test's own, for its owner and for the service."""
    owner_url, service_url = migrated_database(database, unique("restarts").replace("-", "_"))
    return owner_url, service_url


@pytest.fixture
def replicas(
    fake_kafka: FakeCluster, audit_url: tuple[str, str], tmp_path: Path
) -> Iterator[list[RunningService]]:
    """Two replicas as in production: a stop is announced before it begins."""
    with ExitStack() as stack:
        made = []
        for number in range(2):
            folder = tmp_path / f"replica-{number}"
            folder.mkdir()
            serving = running_service(
                folder,
                fake_kafka.bootstrap_servers,
                audit_url[1],
                mode="production",
                shutdown_delay_s="3",
            )
            made.append(stack.enter_context(serving))
        yield made


async def test_rolling_restarts_lose_no_request(
    replicas: list[RunningService], audit_url: tuple[str, str]
):
    balancer = Balancer(replicas)
    slowest = 0.0
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(balancer.watch())
        await balancer.until_ready(2)
        for _ in range(CLIENTS):
            tasks.create_task(balancer.client())
        for turn in range(RESTARTS):
            replica = replicas[turn % 2]
            began = time.monotonic()
            assert await asyncio.to_thread(replica.stop) == 0
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.to_thread(replica.start)
            await balancer.until_ready(2)
        balancer.enough = True
    with psycopg.connect(audit_url[0]) as connection:
        recovered = connection.execute(_LEFT_TO_RECOVERY).fetchone()
        still_open = connection.execute(_OPEN).fetchone()
    note_figures(
        {
            "restarts": RESTARTS,
            "requests": sum(balancer.statuses.values()),
            "requests that failed": len(balancer.broken)
            + sum(number for status, number in balancer.statuses.items() if status != 200),
            "intents left to recovery": recovered,
            "slowest exit, s": round(slowest, 1),
        }
    )
    assert balancer.broken == []
    assert set(balancer.statuses) == {200}
    assert recovered == (0,)
    assert still_open == (0,)
    assert slowest < EXIT_WITHIN_S
