"""kill -9 at each failpoint of an alteration: what is recorded of it is exact.

What is applied later than any verdict can wait for is not hidden: it becomes drift.
"""

import asyncio
from itertools import count

from app.domain.entities import ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from app.service.alterations.write_ahead import send_within_s
from app.service.runtime.clock import USUAL, boot_time
from app.service.runtime.tasks import POINTS
from tests.faults.crash_recovery.conftest import NewWorld
from tests.faults.crash_recovery.run import Run
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import HELD, FakeCluster, Fault
from tests.testkit.fake_kafka.server import closing
from tests.testkit.history.events import End, Write
from tests.testkit.history.evidence import AuditedEntity, Evidence
from tests.testkit.kafka import eventually, unique

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

FROZEN_FOR_AT_MOST_S = 90.0
_VALUES = count(1_000_000)


def a_write() -> Write:
    entity = ClientQuotaEntity.of({"user": unique("failpoint")})
    return Write(entity, "producer_byte_rate", float(next(_VALUES)))


async def killed_at(run: Run, point: str, write: Write) -> None:
    """Start a replica that is killed at a point, and let it alter."""
    replica = await run.serve(test_failpoint=f"{point}:kill")
    assert await run.alter(replica, write) is None
    await asyncio.to_thread(replica.wait_until_ended)


def conclusions_of(evidence: Evidence, write: Write) -> list[tuple[str, str | None]]:
    return [
        (event.kind, event.outcome)
        for item in evidence.audited_of.get(write, [])
        for event in item.conclusions
    ]


def test_every_failpoint_is_tried():
    assert (*CONCLUSIONS, *RECOVERY_POINTS) == POINTS


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
    over = boot_time() + send_within_s(1, USUAL)
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
