"""Postgres, brokers and replicas are killed or hang while clients alter."""

import asyncio
import random

from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.conftest import NewWorld, World
from tests.faults.crash_recovery.outages import during_a_load, dying, hanging, random_faults
from tests.faults.crash_recovery.run import Run
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.history.metadata_log import of_apply_log
from tests.testkit.load import Driver, Load
from tests.testkit.sizes import SEED, size

LONGER_THAN_A_FREEZE_S = 8.0
"""A verdict is final after a longer time than any replica hangs, as with the real 95 s."""


async def test_outages_leave_nothing_wrong(
    new_world: NewWorld, postgres: LocalPostgres, mortal_postgres: LocalPostgres
):
    """Two runs that share nothing, at the same time: most of it is waiting."""
    await asyncio.gather(
        postgres_is_killed_and_hangs(*new_world(mortal_postgres), mortal_postgres),
        replicas_and_brokers_are_out(*new_world(postgres)),
    )


async def postgres_is_killed_and_hangs(
    run: Run, cluster: FakeCluster, postgres: LocalPostgres
) -> None:
    for _ in range(2):
        await asyncio.to_thread(run.serve)
    cluster.decide_by(random_faults(SEED))
    killed = dying(postgres.kill, postgres.start, 0.2)
    paused = hanging(postgres.pause, postgres.resume, 2.0)
    await during_a_load(run, [killed, paused, killed, killed], between_s=3.0)
    cluster.decide_by(None)
    # What an owner holds unknowingly is free for others a minute later, or when it is dead.
    for replica in size(run.replicas, []):
        await dying(replica.kill, replica.start, 0.0)()
    evidence = await run.judge(lambda: of_apply_log(cluster.apply_log))
    assert evidence.oracle.records


async def replicas_and_brokers_are_out(run: Run, cluster: FakeCluster) -> None:
    run.final_after_s = LONGER_THAN_A_FREEZE_S
    replicas = [await asyncio.to_thread(run.serve) for _ in range(2)]
    frozen = [hanging(replica.freeze, replica.thaw, 6.0) for replica in replicas]
    killed = dying(lambda: cluster.kill(1), lambda: cluster.start(1), 0.5)
    hung = hanging(lambda: cluster.freeze(1), lambda: cluster.thaw(1), 1.5)
    paused = hanging(cluster.pause_controller, cluster.resume_controller, 1.5)
    deposed = hanging(cluster.pause_controller, cluster.change_controller, 0.5)
    cut = hanging(lambda: cluster.hold_requests(1), lambda: cluster.cut(1), 0.3)
    deaf = hanging(lambda: cluster.hold_answers(1), lambda: cluster.cut(1), 0.3)
    everything = [frozen[0], killed, hung, paused, deposed, cut, deaf, frozen[1]]
    await during_a_load(run, everything)
    cluster.let_go(1)
    evidence = await run.judge(lambda: of_apply_log(cluster.apply_log))
    assert evidence.oracle.records


KILLS = size(8, 500)


async def test_killing_the_service_at_random_leaves_nothing_wrong(world: World):
    run, cluster = world
    for _ in range(2):
        await asyncio.to_thread(run.serve)
    cluster.decide_by(random_faults(SEED))
    load = Load(calls=1_000_000, clients=6, entities=40, pause_s=0.2, seed=SEED)
    driver = run.driver(load)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(driver.run())
        tasks.create_task(_kill_often(run, driver))
    cluster.decide_by(None)
    evidence = await run.judge(lambda: of_apply_log(cluster.apply_log))
    assert len(evidence.oracle.records) > KILLS
    assert any(entity.was_recovered for entity in evidence.audit.entities)


async def _kill_often(run: Run, driver: Driver) -> None:
    chance = random.Random(SEED)
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        replica = chance.choice(run.replicas)
        await asyncio.to_thread(replica.kill)
        await asyncio.to_thread(replica.start)
        run.faults += 1
    driver.enough = True
