"""kill -9 of services of two clusters on one database: nobody touches the other's record."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.conftest import NewWorld, World
from tests.faults.crash_recovery.outages import random_faults
from tests.faults.crash_recovery.run import Run
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.history.events import Write, read_history
from tests.testkit.history.metadata_log import of_apply_log
from tests.testkit.kafka import eventually
from tests.testkit.load import Driver, Load
from tests.testkit.sizes import SEED, size

KILLS = size(8, 200)
FIRST_VALUES = (1_000_000_000, 2_000_000_000)
"""Each value belongs to one cluster; the entities and the idempotency keys are the same."""


@pytest.fixture
def worlds(new_world: NewWorld, postgres: LocalPostgres) -> Sequence[World]:
    """Two clusters and the runs of their services, on one database."""
    first = new_world(postgres)
    second = new_world(postgres, first[0].database)
    second[1].set_cluster_id("second")
    return first, second


async def test_killing_services_of_two_clusters_leaves_each_record_its_own(worlds: Sequence[World]):
    for run, cluster in worlds:
        for _ in range(2):
            await asyncio.to_thread(run.serve, drift_interval_s="1")
        cluster.decide_by(random_faults(SEED))
    name = Load().name
    drivers = [
        run.driver(
            Load(1_000_000, 4, 30, pause_s=0.2, seed=SEED, first_value=first_value, name=name)
        )
        for (run, _), first_value in zip(worlds, FIRST_VALUES, strict=True)
    ]
    async with asyncio.TaskGroup() as tasks:
        for driver in drivers:
            tasks.create_task(driver.run())
        tasks.create_task(_kill_often([run for run, _ in worlds], drivers))
    for _, cluster in worlds:
        cluster.decide_by(None)
    for run, cluster in worlds:
        evidence = await run.judge(lambda cluster=cluster: of_apply_log(cluster.apply_log))
        assert len(evidence.oracle.records) > KILLS
        assert any(entity.was_recovered for entity in evidence.audit.entities)
        assert evidence.audit.drift == []
        assert _sent_to(cluster) <= _asked_of(run)
    await asyncio.gather(*(_drift_is_recorded(*world) for world in worlds))


async def _kill_often(runs: Sequence[Run], drivers: Sequence[Driver]) -> None:
    chance = random.Random(SEED)
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        run = chance.choice(runs)
        replica = chance.choice(run.replicas)
        await asyncio.to_thread(replica.kill)
        await asyncio.to_thread(replica.start)
        run.faults += 1
    for driver in drivers:
        driver.enough = True


def _sent_to(cluster: FakeCluster) -> set[Write]:
    """Return what brokers were asked to write, the fences of recovery included."""
    return {
        Write(entry.entity, key, value)
        for alteration in cluster.alterations
        for entry in alteration.entries
        for key, value in entry.ops
    }


def _asked_of(run: Run) -> set[Write]:
    """Return what clients asked the services of the run to write."""
    return {write for call in read_history(run.log.path) for write in call.writes}


async def _drift_is_recorded(run: Run, cluster: FakeCluster) -> None:
    """Let another tool change an entity of this cluster, and wait until the log has it."""
    entity, key = next((item, key) for item, values in cluster.quotas.items() for key in values)
    write = Write(entity, key, 7.0)
    cluster.store(entity, {key: write.value})

    async def drift() -> list[Write]:
        return list((await asyncio.to_thread(run.audit)).drift)

    await eventually(drift, [write])
