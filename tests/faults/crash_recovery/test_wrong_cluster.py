"""The brokers of a running service answer with another cluster id: it waits for the first one."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from app.domain.entities import ClientQuotaEntity
from tests.faults.crash_recovery.conftest import World
from tests.faults.crash_recovery.run import Run, ask
from tests.faults.crash_recovery.test_failpoints import KEY, plan
from tests.testkit.fake_kafka.cluster import DROP_BEFORE_APPLYING, FakeCluster
from tests.testkit.history.events import End, Write
from tests.testkit.kafka import eventually, unique
from tests.testkit.service import RunningService

OLD_ENOUGH_S = 2.0
"""How long past its final verdict an alteration is left open, to see that nobody concludes it."""


@dataclass
class Seen:
    """What a service that serves the first cluster has in memory and in its log.

    Attributes:
        applied: With a key.
        open: An alteration whose outcome is unknown.
    """

    applied: Write
    key: str
    applied_id: str
    open: Write
    plan_id: str
    page_token: str

    def requests(self) -> Sequence[tuple[str, str, dict[str, Any]]]:
        """Return a request for each subject that rests on the cluster."""
        key = {"headers": {"Idempotency-Key": self.key}}
        return (
            ("GET", "/quotas?max_age_ms=3600000", {}),
            ("GET", "/quotas/resolve?user=alice&max_age_ms=3600000", {}),
            ("GET", f"/quotas?page_size=1&page_token={self.page_token}", {}),
            ("GET", f"/quotas/plans/{self.plan_id}", {}),
            ("POST", f"/quotas/plans/{self.plan_id}/apply", {"json": {}}),
            ("POST", "/quotas/alterations", {"json": body(self.applied), **key}),
            ("POST", "/quotas/alterations", {"json": body(written("another"))}),
            ("GET", f"/quotas/alterations/{self.applied_id}", {}),
            ("GET", "/audit", {}),
        )


def written(name: str, value: float = 5.0) -> Write:
    return Write(ClientQuotaEntity.of({"user": unique(name)}), KEY, value)


def body(write: Write) -> dict[str, Any]:
    ops = [{"key": write.key, "value": write.value}]
    return {"alterations": [{"entity": write.entity.as_dict(), "ops": ops}], "wait": "none"}


async def seen_of(run: Run, cluster: FakeCluster, replica: RunningService) -> Seen:
    """Let the service see, plan, alter and leave open something."""
    applied, still_open, key = written("applied"), written("open"), unique("key")
    for _ in range(2):
        assert (await alter(run, replica, written("page"))).end is End.OK
    answer = await alter(run, replica, applied, key)
    assert answer.alteration_id is not None
    cluster.fail_next(DROP_BEFORE_APPLYING)
    assert (await alter(run, replica, still_open)).end is End.UNKNOWN
    await ask(replica, "GET", "/quotas/resolve?user=alice&max_age_ms=3600000")
    page = (await ask(replica, "GET", "/quotas?page_size=1")).json()
    plan_id = (await plan(replica, {unique("planned"): 7}, "team"))["plan_id"]
    return Seen(applied, key, answer.alteration_id, still_open, plan_id, page["next_page_token"])


async def alter(run: Run, replica: RunningService, write: Write, key: str | None = None) -> Any:
    answer = await run.alter(replica, write, key=key)
    assert answer is not None
    return answer


def move(cluster: FakeCluster, cluster_id: str) -> None:
    """Let another cluster answer, or the first one again."""
    cluster.cluster_id = cluster_id
    cluster.hang_up(1)


async def write_status(replica: RunningService) -> tuple[int, bool]:
    """Return the status of the probe, and whether it names the reason."""
    answer = await ask(replica, "GET", "/readyz?for=write")
    return answer.status_code, "of the cluster 'other'" in answer.text


async def metric(replica: RunningService) -> str:
    text = (await ask(replica, "GET", "/metrics")).text
    return re.findall(r"(?m)^kafka_wrong_cluster(?:\{.*\})? (\S+)$", text)[0]


def held(run: Run) -> tuple[int, float]:
    """Return how many entities are held, and for how many seconds at least they were sent."""
    query = """select count(*), coalesce(min(extract(epoch from clock_timestamp() - handed_over_by)
      ), 0)::float8 from quota_entity where alteration_id is not null"""
    with psycopg.connect(run.database.superuser_url) as connection:
        number, age_s = connection.execute(query).fetchone() or (0, 0.0)
    return number, age_s


async def is_long_past_its_verdict(run: Run) -> bool:
    number, age_s = await asyncio.to_thread(held, run)
    assert number == 1
    return age_s > run.final_after_s + OLD_ENOUGH_S


@pytest.fixture
async def moved(world: World) -> tuple[Run, FakeCluster, RunningService, Seen]:
    """A service that has served one cluster, and whose brokers are of another one now."""
    run, cluster = world
    replica = await run.serve(drift_interval_s="1")
    seen = await seen_of(run, cluster, replica)
    move(cluster, "other")
    await eventually(lambda: write_status(replica), (503, True))
    return run, cluster, replica, seen


async def test_a_service_serves_and_concludes_nothing_until_its_cluster_is_back(
    moved: tuple[Run, FakeCluster, RunningService, Seen],
):
    run, cluster, replica, seen = moved
    sent = len(cluster.alterations)
    assert await metric(replica) == "1.0"
    for method, path, options in seen.requests():
        answer = await ask(replica, method, path, **options)
        assert (answer.status_code, answer.json().get("code")) == (503, "wrong-cluster"), path
    await eventually(lambda: is_long_past_its_verdict(run), True)
    assert len(cluster.alterations) == sent
    move(cluster, "fake")
    await eventually(lambda: write_status(replica), (200, False))
    assert await metric(replica) == "0.0"
    logged = replica.log_path.read_text()
    assert [logged.count(words) for words in ("restart the service", "answers again")] == [1, 1]
    await run.judge()


async def test_after_a_restart_it_serves_the_other_cluster_and_leaves_the_first_ones_record(
    moved: tuple[Run, FakeCluster, RunningService, Seen],
):
    run, _, replica, seen = moved
    await asyncio.to_thread(replica.kill)
    await asyncio.to_thread(replica.start)
    await eventually(lambda: write_status(replica), (200, False))
    assert (await ask(replica, "GET", "/quotas")).json()["cluster_id"] == "other"
    again = await ask(
        replica,
        "POST",
        "/quotas/alterations",
        json=body(seen.applied),
        headers={"Idempotency-Key": seen.key},
    )
    assert (again.status_code, again.json()["cluster_id"]) == (200, "other")
    assert again.json()["alteration_id"] != seen.applied_id
    rows = (await ask(replica, "GET", "/audit")).json()["rows"]
    assert {row["cluster_id"] for row in rows if row["action"] == "alter"} == {"other"}
    for path in (f"/quotas/alterations/{seen.applied_id}", f"/quotas/plans/{seen.plan_id}"):
        assert (await ask(replica, "GET", path)).status_code == 404, path
    await eventually(lambda: is_long_past_its_verdict(run), True)
