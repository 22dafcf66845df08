"""What is applied later than any verdict can wait for is not hidden: it becomes drift."""

import asyncio

from app.domain.entities import ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.conftest import NewWorld
from tests.faults.crash_recovery.run import Run
from tests.testkit.fake_kafka.cluster import HELD, FakeCluster, Fault
from tests.testkit.fake_kafka.server import closing
from tests.testkit.history.events import End, Write
from tests.testkit.history.evidence import AuditedEntity
from tests.testkit.kafka import eventually, unique

KEY = "producer_byte_rate"
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
    first = Write(ClientQuotaEntity.of({"user": unique("late")}), KEY, 1001.0)
    replica = await asyncio.to_thread(run.serve, **SCANS)
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
    entity = ClientQuotaEntity.of({"user": unique("late")})
    first, second = Write(entity, KEY, 2001.0), Write(entity, KEY, 2002.0)
    replica = await asyncio.to_thread(run.serve, **SCANS)
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
