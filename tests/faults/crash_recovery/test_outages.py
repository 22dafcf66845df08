"""Postgres, brokers and replicas are killed or hang while clients alter."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.localdev.postgres import LocalPostgres
from app.service.runtime.clock import USUAL
from tests.faults.crash_recovery.conftest import NewWorld, World
from tests.faults.crash_recovery.run import (
    CALLER,
    FINAL_AFTER_FAULTS_S,
    Run,
    during,
    during_a_load,
    out,
    random_faults,
    reborn,
)
from tests.testkit.clusters import of_clusters
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.history.events import Write
from tests.testkit.kafka import eventually
from tests.testkit.load import Load
from tests.testkit.sizes import SEED, size

FROZEN_FOR_S, FINAL_AFTER_A_FREEZE_S = size((3.0, FINAL_AFTER_FAULTS_S), (6.0, 8.0))
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
    run.final_after_s = FINAL_AFTER_FAULTS_S
    for _ in range(2):
        await run.serve()
    cluster.schedule = random_faults(SEED)
    killed = out(postgres.kill, postgres.start, 0.2)
    paused = out(postgres.pause, postgres.resume, 2.0)
    await during_a_load(run, [killed, paused, killed, killed], between_s=size(2.0, 3.0))
    cluster.schedule = None
    # What an owner holds unknowingly is free for others a minute later, or when it is dead.
    for replica in size(run.replicas, []):
        await reborn(replica)()
    evidence = await run.judge()
    assert evidence.records


async def replicas_and_brokers_are_out(run: Run, cluster: FakeCluster) -> None:
    run.final_after_s = FINAL_AFTER_A_FREEZE_S
    replicas = [await run.serve() for _ in range(2)]
    frozen = [out(replica.freeze, replica.thaw, FROZEN_FOR_S) for replica in replicas]
    killed = out(lambda: cluster.kill(1), lambda: cluster.start(1), 0.5)
    hung = out(lambda: cluster.freeze(1), lambda: cluster.thaw(1), 1.5)
    paused = out(cluster.pause_controller, cluster.resume_controller, 1.5)
    deposed = out(cluster.pause_controller, cluster.change_controller, 0.5)
    cut = out(lambda: cluster.hold_requests(1), lambda: cluster.cut(1), 0.3)
    deaf = out(lambda: cluster.hold_answers(1), lambda: cluster.cut(1), 0.3)
    everything = [frozen[0], killed, hung, paused, deposed, cut, deaf, frozen[1]]
    await during_a_load(run, everything)
    cluster.let_go(1)
    evidence = await run.judge()
    assert evidence.records


KILLS = size(6, 500)


async def test_killing_the_service_at_random_leaves_nothing_wrong(world: World):
    run, cluster = world
    run.final_after_s = FINAL_AFTER_FAULTS_S
    replicas = [await run.serve() for _ in range(2)]
    cluster.schedule = random_faults(SEED)
    chance = random.Random(SEED)
    kills = [reborn(chance.choice(replicas)) for _ in range(KILLS)]
    await during_a_load(run, kills, between_s=0.6)
    cluster.schedule = None
    evidence = await run.judge()
    assert len(evidence.records) > KILLS
    assert any(entity.was_recovered for entity in evidence.audit.entities)


KILLS_OF_TWO = size(6, 200)
NAMES = ("one", "two")
FIRST_VALUES = (1_000_000_000, 2_000_000_000)
"""Each value belongs to one cluster; the entities and the idempotency keys are the same."""


@pytest.fixture
def worlds(new_world: NewWorld, postgres: LocalPostgres) -> Sequence[World]:
    """Two clusters and the runs of their services, on one database."""
    first = new_world(postgres)
    second = new_world(postgres, first[0].database)
    second[1].cluster_id = "second"
    return first, second


async def test_killing_services_of_two_clusters_leaves_each_record_its_own(worlds: Sequence[World]):
    for run, cluster in worlds:
        run.final_after_s = FINAL_AFTER_FAULTS_S
        for _ in range(2):
            await run.serve(drift_interval_s="1")
        cluster.schedule = random_faults(SEED)
    await killed_and_judged(worlds)


@pytest.mark.long
async def test_killing_one_service_of_two_clusters_leaves_each_record_its_own(
    worlds: Sequence[World], tmp_path: Path
):
    """The same, with both clusters in each process."""
    entries = {
        name: {"bootstrap_servers": run.bootstrap_servers, "super_users": [f"User:{CALLER}"]}
        for name, (run, _) in zip(NAMES, worlds, strict=True)
    }
    replicas = []
    for number in range(2):
        (folder := tmp_path / f"both-{number}").mkdir()
        options = {"drift_interval_s": "1", "test_final_after_s": str(FINAL_AFTER_FAULTS_S)}
        url = worlds[0][0].database.service_url
        replica = of_clusters(folder, url, entries, patience=USUAL, **options)
        await asyncio.to_thread(replica.start)
        replicas.append(replica)
    for name, (run, cluster) in zip(NAMES, worlds, strict=True):
        run.final_after_s, run.below = FINAL_AFTER_FAULTS_S, f"/clusters/{name}"
        run.replicas += replicas
        cluster.schedule = random_faults(SEED)
    await killed_and_judged(worlds)


async def killed_and_judged(worlds: Sequence[World]) -> None:
    """Kill replicas at random while clients alter on both clusters, and check each run."""
    load = Load(clients=4)
    drivers = [
        run.driver(replace(load, first_value=first_value))
        for (run, _), first_value in zip(worlds, FIRST_VALUES, strict=True)
    ]
    chance, kills = random.Random(SEED), []
    for _ in range(KILLS_OF_TWO):
        run, _ = chance.choice(worlds)
        kills.append(reborn(chance.choice(run.replicas)))
        run.faults += 1
    await during(drivers, kills, 0.6)
    for _, cluster in worlds:
        cluster.schedule = None
    for run, cluster in worlds:
        evidence = await run.judge()
        assert len(evidence.records) > KILLS_OF_TWO
        assert any(entity.was_recovered for entity in evidence.audit.entities)
        assert evidence.audit.drift == []
        assert _sent_to(cluster) <= _asked_of(run)
    await asyncio.gather(*(_drift_is_recorded(*world) for world in worlds))


def _sent_to(cluster: FakeCluster) -> set[Write]:
    """Return what brokers were asked to write, the fences of recovery included."""
    return {
        Write(entry.entity, key, value)
        for alteration in cluster.alterations
        for entry in alteration.entries
        for key, value in entry.ops
    }


def _asked_of(run: Run) -> set[Write]:
    return {write for call in run.log for write in call.writes}


async def _drift_is_recorded(run: Run, cluster: FakeCluster) -> None:
    """Let another tool change an entity of this cluster, and wait until the log has it."""
    entity, key = next((item, key) for item, values in cluster.quotas.items() for key in values)
    cluster.store(entity, {key: 7.0})

    async def drift() -> list[Write]:
        return list((await asyncio.to_thread(run.audit)).drift)

    await eventually(drift, [Write(entity, key, 7.0)])
