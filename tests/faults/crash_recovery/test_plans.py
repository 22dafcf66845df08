"""kill -9 while a plan is applied: owners hold what was applied, and nothing else."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import httpx
import psycopg

from app.domain.entities import ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.conftest import NewWorld, World
from tests.faults.crash_recovery.run import Run, ask
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.kafka import unique
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

HELD: Final = {
    "before_intent": False,
    "after_intent": False,
    "before_send": False,
    "after_answer": True,
    "after_conclusion": True,
}
"""By point: whether the plan turns out to be applied."""

KEY: Final = "producer_byte_rate"


async def plan(replica: RunningService, wanted: Mapping[str, int], owner: str) -> Any:
    """Plan a value for each user, as what is left of the file."""
    quotas = [{"entity": {"user": key}, "values": {KEY: value}} for key, value in wanted.items()]
    body = {"document": {"apiVersion": "quotas/v1", "quotas": quotas}, "owner": owner}
    answer = await ask(replica, "POST", "/quotas/plans", json={**body, "prune": True})
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()


async def apply(replica: RunningService, planned: Any) -> httpx.Response | None:
    """Apply; null where no answer came."""
    path = f"/quotas/plans/{planned['plan_id']}/apply"
    try:
        return await ask(replica, "POST", path, json={})
    except httpx.TransportError:
        return None


async def applied(replica: RunningService, planned: Any) -> None:
    """Apply, and make sure that it was."""
    answer = await apply(replica, planned)
    assert answer is not None
    assert answer.status_code == httpx.codes.OK, answer.text


def owners(run: Run) -> dict[str, str]:
    with psycopg.connect(run.database.superuser_url) as connection:
        rows = connection.execute("select entity::json ->> 'user', owner from quota_owner")
        return dict(rows.fetchall())


async def killed_at(points: tuple[str, ...], run: Run, cluster: FakeCluster) -> None:
    """Be killed at each point, and look once all is concluded.

    Each plan changes two users and removes a third, which the owner had applied before.
    """
    users = {point: [unique(point.replace("_", "-")) for _ in range(3)] for point in points}
    living = await run.serve()
    for point, three in users.items():
        await applied(living, await plan(living, dict.fromkeys(three, 1), point))
    await asyncio.to_thread(living.kill)
    await asyncio.gather(*(plan_and_die(run, point, three[:2]) for point, three in users.items()))
    last = await run.serve()
    assert await run.until_quiet() < run.quiet_within_s
    held = await asyncio.to_thread(owners, run)
    for point, three in users.items():
        left = three[:2] if HELD[point] else three
        assert (ClientQuotaEntity.of({"user": three[2]}) in cluster.quotas) != HELD[point]
        assert {user for user in three if held.get(user) == point} == set(left), point
        await nothing_is_left_to_do(last, cluster, point, left, 2 if HELD[point] else 1)


async def plan_and_die(run: Run, point: str, changed: list[str]) -> None:
    """Let a replica that is killed at a point plan and apply."""
    mortal = await run.serve(test_failpoint=f"{point}:kill")
    planned = await plan(mortal, dict.fromkeys(changed, 2), point)
    assert len(planned["changes"]) == 3
    assert await apply(mortal, planned) is None
    await asyncio.to_thread(mortal.wait_until_ended)


async def nothing_is_left_to_do(
    replica: RunningService, cluster: FakeCluster, owner: str, left: list[str], value: int
) -> None:
    """The file that describes the outcome plans to nothing, and an empty one removes just that."""
    assert (await plan(replica, dict.fromkeys(left, value), owner))["changes"] == []
    leaving = await plan(replica, {}, owner)
    assert {change["entity"]["user"] for change in leaving["changes"]} == set(left)
    stored = cluster.quotas
    for user in left:
        assert stored[ClientQuotaEntity.of({"user": user})] == {KEY: value}


async def test_an_owner_holds_what_was_applied_before_and_after_the_sending(
    new_world: NewWorld, postgres: LocalPostgres
) -> None:
    """The two points where nothing but the cluster knows; a long run tries all of them."""
    points = size(("before_send", "after_answer"), tuple(HELD))
    await killed_at(points, *new_world(postgres))


async def settled_at_1000(run: Run) -> tuple[RunningService, str, str]:
    """Return a replica, and two users whose values a plan has set to 1000."""
    living = await run.serve()
    x, y = unique("x"), unique("y")
    await applied(living, await plan(living, {x: 1000, y: 1000}, "team"))
    return living, x, y


def values(cluster: FakeCluster, *users: str) -> list[float]:
    return [cluster.quotas[ClientQuotaEntity.of({"user": user})][KEY] for user in users]


async def test_a_frozen_plan_holds_what_it_rests_on(world: World) -> None:
    """Both plans rest on what the other one changes: were both applied, neither would hold."""
    run, cluster = world
    run.final_after_s = 95.0
    living, x, y = await settled_at_1000(run)
    first = await plan(living, {x: 1000, y: 2000}, "team")
    second = await plan(living, {x: 2000, y: 1000}, "team")
    mortal = await run.serve(test_failpoint="before_send:stop")
    applying = asyncio.create_task(apply(mortal, first))
    await until(mortal.is_frozen)
    refused = await apply(living, second)
    mortal.thaw()
    answer = await applying
    assert refused is not None
    assert answer is not None
    sent = answer.status_code == httpx.codes.OK
    assert values(cluster, x, y) == [1000, 2000 if sent else 1000]
    assert (refused.status_code, refused.json()["code"]) == (409, "entity-busy")
    assert await run.until_quiet() < run.quiet_within_s
    again = await apply(living, second)
    assert again is not None
    assert again.status_code == (httpx.codes.PRECONDITION_FAILED if sent else httpx.codes.OK)


async def test_what_a_killed_plan_rests_on_is_held_until_recovery_concludes(world: World) -> None:
    run, cluster = world
    living, x, y = await settled_at_1000(run)
    first = await plan(living, {x: 1000, y: 2000}, "team")
    second = await plan(living, {x: 2000, y: 1000}, "team")
    mortal = await run.serve(test_failpoint="before_send:kill")
    assert await apply(mortal, first) is None
    await asyncio.to_thread(mortal.wait_until_ended)
    refused = await apply(living, second)
    assert refused is not None
    assert refused.json()["code"] == "entity-busy"
    assert await run.until_quiet() < run.quiet_within_s
    assert values(cluster, x, y) == [1000, 1000]
    await applied(living, second)
    assert values(cluster, x, y) == [2000, 1000]
