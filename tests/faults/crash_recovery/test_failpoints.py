"""kill -9 at each failpoint of an alteration: what is recorded of it is exact.

What is applied later than any verdict can wait for is not hidden: it becomes drift. Of a plan,
owners hold what was applied, and nothing else.
"""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import httpx
import psycopg

from app.domain.entities import ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from app.service.alterations.write_ahead import send_within_s
from app.service.ports.alterations import POINTS
from app.service.runtime.clock import LONGEST_S, USUAL, boot_time
from tests.faults.crash_recovery.conftest import NewWorld, World
from tests.faults.crash_recovery.run import Run, ask
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import HELD, FakeCluster, Fault
from tests.testkit.fake_kafka.server import closing
from tests.testkit.history.events import End, Write
from tests.testkit.history.evidence import AuditedEntity, Evidence
from tests.testkit.kafka import eventually, unique
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

KEY: Final = "producer_byte_rate"

CONCLUSIONS = {
    "before_intent": [],
    "intent_begun": [],
    "after_intent": [("recovery", "not_applied")],
    "before_send": [("recovery", "not_applied")],
    "before_last_check": [("recovery", "not_applied")],
    "after_last_check": [("recovery", "not_applied")],
    "handed_over": [("recovery", "applied")],
    "after_answer": [("recovery", "applied")],
    "after_conclusion": [("outcome", "applied")],
}
"""By point: kind and outcome of the conclusion; none without an intent."""

NEVER_GOES_ON = ("before_last_check", "after_last_check", "handed_over")
"""Where a process that stood still for too long ends instead."""

RECOVERY_POINTS = ("recovery_before_record", "recovery_after_record")

POINTS_FOR_A_TIME = {"returns_recorded"}
"""What only a value for a time passes: ``test_expiries`` kills there."""

FROZEN_FOR_AT_MOST_S = 90.0
_VALUES = count(1_000_000)


def a_write() -> Write:
    entity = ClientQuotaEntity.of({"user": unique("failpoint")})
    return Write(entity, KEY, float(next(_VALUES)))


async def killed_at(run: Run, point: str, write: Write) -> None:
    """Start a replica that is killed at a point, and let it alter."""
    replica = await run.serve(test_failpoint=f"{point}:kill")
    await run.until_watched()
    assert await run.alter(replica, write) is None
    await asyncio.to_thread(replica.wait_until_ended)


def conclusions_of(evidence: Evidence, write: Write) -> list[tuple[str, str | None]]:
    return [
        (event.kind, event.outcome)
        for item in evidence.audited_of.get(write, [])
        for event in item.conclusions
    ]


def test_every_failpoint_is_tried():
    of_each = [point for point in POINTS if point not in POINTS_FOR_A_TIME]
    assert [*CONCLUSIONS, *RECOVERY_POINTS] == of_each
    assert set(POINTS) >= POINTS_FOR_A_TIME


async def test_a_kill_or_a_freeze_at_any_point_is_concluded_exactly_and_once(
    new_world: NewWorld, postgres: LocalPostgres
):
    """Runs that share nothing but Postgres, at the same time: most of it is waiting."""
    await asyncio.gather(
        killed_while_altering(*new_world(postgres)),
        *(killed_during_recovery(*new_world(postgres), point) for point in RECOVERY_POINTS),
        frozen(*new_world(postgres)),
        frozen_before_its_transaction(*new_world(postgres)),
    )


async def frozen(run: Run, cluster: FakeCluster) -> None:
    """It does not send what recovery has concluded meanwhile, wherever it stood still."""
    writes = {point: a_write() for point, ends in CONCLUSIONS.items() if is_recovered(ends)}
    served = await asyncio.gather(*(run.serve(test_failpoint=f"{point}:stop") for point in writes))
    replicas = dict(zip(writes, served, strict=True))
    await run.serve()
    await run.until_watched()
    answers = {
        point: asyncio.create_task(run.alter(replicas[point], write))
        for point, write in writes.items()
    }
    await eventually(lambda: number_of_concluded(run), len(writes), FROZEN_FOR_AT_MOST_S)
    for point, replica in replicas.items():
        replica.thaw()
        answer = await answers[point]
        if point in NEVER_GOES_ON:
            assert answer is None, point
        elif point != "after_answer":
            assert answer is not None, point
            assert answer.end is End.FAIL, point
    evidence = await run.judge()
    found = {point: conclusions_of(evidence, write) for point, write in writes.items()}
    assert found == {point: CONCLUSIONS[point] for point in writes}


async def number_of_concluded(run: Run) -> int:
    audit = await asyncio.to_thread(run.audit)
    return sum(bool(entity.conclusions) for entity in audit.entities)


def is_recovered(ends: list[tuple[str, str]]) -> bool:
    return any(kind == "recovery" for kind, _ in ends)


async def frozen_before_its_transaction(run: Run, cluster: FakeCluster) -> None:
    """It does not send what is recorded after the time for its sending is over."""
    write = a_write()
    frozen = await run.serve(test_failpoint="intent_begun:stop")
    asking = asyncio.create_task(run.alter(frozen, write))
    await until(frozen.is_frozen)
    over = boot_time() + send_within_s(1, USUAL, barrier_s=LONGEST_S)
    await until(lambda: boot_time() > over)
    frozen.thaw()
    answer = await asking
    assert answer is not None
    assert answer.end is End.FAIL
    evidence = await run.judge()
    assert conclusions_of(evidence, write) == [("outcome", "not_sent")]


async def killed_while_altering(run: Run, cluster: FakeCluster) -> None:
    writes = {point: a_write() for point in CONCLUSIONS}
    for point, write in writes.items():
        await killed_at(run, point, write)
    await run.serve()
    evidence = await run.judge()
    found = {point: conclusions_of(evidence, write) for point, write in writes.items()}
    assert found == CONCLUSIONS


async def killed_during_recovery(run: Run, cluster: FakeCluster, point: str) -> None:
    applied, not_applied = a_write(), a_write()
    await killed_at(run, "after_answer", applied)
    await killed_at(run, "before_send", not_applied)
    recovering = await run.serve(test_failpoint=f"{point}:kill")
    await asyncio.to_thread(recovering.wait_until_ended)
    await run.serve()
    evidence = await run.judge()
    assert conclusions_of(evidence, applied) == [("recovery", "applied")]
    assert conclusions_of(evidence, not_applied) == [("recovery", "not_applied")]


SCANS = {"drift_interval_s": "1"}

APPLY_ON_COMMAND = Fault(applies=(HELD,), reply=closing)
APPLY_NOW_AND_ON_COMMAND = Fault(applies=(0.0, HELD), reply=closing)


async def test_a_late_apply_is_recorded_as_drift_and_linked(
    new_world: NewWorld, postgres: LocalPostgres
):
    """Runs that share nothing but Postgres, at the same time: most of it is waiting."""
    await asyncio.gather(
        applied_after_the_verdict(*new_world(postgres)),
        applied_again_over_a_later_change(*new_world(postgres)),
    )


async def applied_after_the_verdict(run: Run, cluster: FakeCluster) -> None:
    first = a_write()
    replica = await run.serve(**SCANS)
    cluster.fail_next(APPLY_ON_COMMAND)
    answer = await run.alter(replica, first)
    assert answer is not None
    assert answer.end is End.UNKNOWN
    await run.until_quiet()
    assert audited(run, first).outcome == "not_applied"
    cluster.apply_held()
    await eventually(lambda: linked(run, first), True)
    await run.judge(bounded=False)


async def applied_again_over_a_later_change(run: Run, cluster: FakeCluster) -> None:
    first = a_write()
    second = first._replace(value=a_write().value)
    replica = await run.serve(**SCANS)
    cluster.fail_next(APPLY_NOW_AND_ON_COMMAND)
    await run.alter(replica, first)
    await run.until_quiet()
    assert audited(run, first).outcome == "applied"
    answer = await run.alter(replica, second)
    assert answer is not None
    assert answer.end is End.OK
    cluster.apply_held()
    await eventually(lambda: linked(run, first), True)
    await run.judge(bounded=False)


def audited(run: Run, write: Write) -> AuditedEntity:
    """Return what the log has of the only intent that names a write."""
    (entity,) = [entity for entity in run.audit().entities if write in entity.writes]
    return entity


async def linked(run: Run, write: Write) -> bool:
    return (await asyncio.to_thread(audited, run, write)).applied_late


OWNS: Final = {
    "before_intent": False,
    "after_intent": False,
    "before_send": False,
    "after_answer": True,
    "after_conclusion": True,
}
"""By point: whether the plan turns out to be applied."""


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


async def test_an_owner_holds_what_was_applied_before_and_after_the_sending(world: World) -> None:
    """The two points where nothing but the cluster knows; a long run tries all of them.

    Each plan changes two users and removes a third, which the owner had applied before.
    """
    run, cluster = world
    points = size(("before_send", "after_answer"), tuple(OWNS))
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
        left = three[:2] if OWNS[point] else three
        assert (ClientQuotaEntity.of({"user": three[2]}) in cluster.quotas) != OWNS[point]
        assert {user for user in three if held.get(user) == point} == set(left), point
        await nothing_is_left_to_do(last, cluster, point, left, 2 if OWNS[point] else 1)


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


async def two_plans(run: Run) -> tuple[RunningService, tuple[str, str], Any, Any]:
    """Return a replica, two users at 1000, and a plan for each that rests on the other's value."""
    living, x, y = await run.serve(), unique("x"), unique("y")
    await applied(living, await plan(living, {x: 1000, y: 1000}, "team"))
    first = await plan(living, {x: 1000, y: 2000}, "team")
    second = await plan(living, {x: 2000, y: 1000}, "team")
    return living, (x, y), first, second


def values(cluster: FakeCluster, *users: str) -> list[float]:
    return [cluster.quotas[ClientQuotaEntity.of({"user": user})][KEY] for user in users]


async def test_a_frozen_plan_holds_what_it_rests_on(world: World) -> None:
    """Both plans rest on what the other one changes: were both applied, neither would hold."""
    run, cluster = world
    run.final_after_s = 95.0
    living, users, first, second = await two_plans(run)
    mortal = await run.serve(test_failpoint="before_send:stop")
    applying = asyncio.create_task(apply(mortal, first))
    await until(mortal.is_frozen)
    refused = await apply(living, second)
    mortal.thaw()
    answer = await applying
    assert refused is not None
    assert answer is not None
    sent = answer.status_code == httpx.codes.OK
    assert values(cluster, *users) == [1000, 2000 if sent else 1000]
    assert (refused.status_code, refused.json()["code"]) == (409, "entity-busy")
    assert await run.until_quiet() < run.quiet_within_s
    again = await apply(living, second)
    assert again is not None
    assert again.status_code == (httpx.codes.PRECONDITION_FAILED if sent else httpx.codes.OK)


async def test_what_a_killed_plan_rests_on_is_held_until_recovery_concludes(world: World) -> None:
    run, cluster = world
    living, users, first, second = await two_plans(run)
    mortal = await run.serve(test_failpoint="before_send:kill")
    assert await apply(mortal, first) is None
    await asyncio.to_thread(mortal.wait_until_ended)
    refused = await apply(living, second)
    assert refused is not None
    assert refused.json()["code"] == "entity-busy"
    assert await run.until_quiet() < run.quiet_within_s
    assert values(cluster, *users) == [1000, 1000]
    await applied(living, second)
    assert values(cluster, *users) == [2000, 1000]
