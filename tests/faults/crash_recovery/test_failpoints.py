"""kill -9 at each named point of an alteration's life: what is recorded of it is exact."""

import asyncio
from itertools import count

from app.domain.entities import ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from app.service.alterations.failpoints import POINTS
from tests.faults.crash_recovery.conftest import NewWorld
from tests.faults.crash_recovery.replica import Replica
from tests.faults.crash_recovery.run import Run
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.history.events import End, Write
from tests.testkit.history.evidence import Evidence
from tests.testkit.history.metadata_log import of_apply_log
from tests.testkit.kafka import eventually, unique

CONCLUSIONS = {
    "before_intent": [],
    "after_intent": [("recovery", "not_applied")],
    "before_send": [("recovery", "not_applied")],
    "after_answer": [("recovery", "applied")],
    "after_conclusion": [("outcome", "applied")],
}
"""By point: kind and outcome of the conclusion; none without an intent."""

RECOVERY_POINTS = ("recovery_before_record", "recovery_after_record")

_VALUES = count(1_000_000)


def a_write() -> Write:
    entity = ClientQuotaEntity.of({"user": unique("failpoint")})
    return Write(entity, "producer_byte_rate", float(next(_VALUES)))


async def killed_at(run: Run, point: str, write: Write) -> Replica:
    """Start a replica that is killed at a point, and let it alter."""
    replica = await asyncio.to_thread(run.serve, test_failpoint=f"{point}:kill")
    assert await run.alter(replica, write) is None
    await asyncio.to_thread(replica.wait_until_ended)
    return replica


def conclusions_of(evidence: Evidence, write: Write) -> list[tuple[str, str | None]]:
    return [
        (event.kind, event.outcome)
        for one in evidence.audited_of.get(write, [])
        for event in one.conclusions
    ]


def test_every_failpoint_is_tried():
    assert (*CONCLUSIONS, *RECOVERY_POINTS) == POINTS


async def test_a_kill_or_a_freeze_at_any_point_is_concluded_exactly_and_once(
    new_world: NewWorld, postgres: LocalPostgres
):
    """Runs that share nothing but Postgres, at the same time: most of it is waiting."""
    await asyncio.gather(
        killed_on_the_way(*new_world(postgres)),
        *(killed_during_recovery(*new_world(postgres), point) for point in RECOVERY_POINTS),
        frozen_before_it_sends(*new_world(postgres)),
    )


async def frozen_before_it_sends(run: Run, cluster: FakeCluster) -> None:
    """It does not send what recovery has concluded meanwhile."""
    write = a_write()
    frozen = await asyncio.to_thread(run.serve, test_failpoint="before_send:stop")
    await asyncio.to_thread(run.serve)
    asking = asyncio.create_task(run.alter(frozen, write))
    await eventually(lambda: everything_is_concluded(run), True)
    frozen.thaw()
    answer = await asking
    assert answer is not None
    assert answer.end is End.FAIL
    evidence = await run.judge(lambda: of_apply_log(cluster.apply_log))
    assert conclusions_of(evidence, write) == [("recovery", "not_applied")]


async def everything_is_concluded(run: Run) -> bool:
    audit = await asyncio.to_thread(run.audit)
    return bool(audit.entities) and all(one.conclusions for one in audit.entities)


async def killed_on_the_way(run: Run, cluster: FakeCluster) -> None:
    writes = {point: a_write() for point in CONCLUSIONS}
    for point, write in writes.items():
        await killed_at(run, point, write)
    await asyncio.to_thread(run.serve)
    evidence = await run.judge(lambda: of_apply_log(cluster.apply_log))
    found = {point: conclusions_of(evidence, write) for point, write in writes.items()}
    assert found == CONCLUSIONS


async def killed_during_recovery(run: Run, cluster: FakeCluster, point: str) -> None:
    applied, not_applied = a_write(), a_write()
    await killed_at(run, "after_answer", applied)
    await killed_at(run, "before_send", not_applied)
    recovering = await asyncio.to_thread(run.serve, test_failpoint=f"{point}:kill")
    await asyncio.to_thread(recovering.wait_until_ended)
    await asyncio.to_thread(run.serve)
    evidence = await run.judge(lambda: of_apply_log(cluster.apply_log))
    assert conclusions_of(evidence, applied) == [("recovery", "applied")]
    assert conclusions_of(evidence, not_applied) == [("recovery", "not_applied")]
