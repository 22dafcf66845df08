"""kill -9 of the service at random instants, while brokers lose, delay and repeat requests."""

import asyncio
import random

from tests.faults.crash_recovery.conftest import World
from tests.faults.crash_recovery.outages import random_faults
from tests.faults.crash_recovery.run import Run
from tests.testkit.history.metadata_log import of_apply_log
from tests.testkit.load import Driver, Load
from tests.testkit.sizes import SEED, size

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
