"""kill -9 of the service at random over a real broker, with the real 95 s."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.faults.lives.conftest import empty_log
from tests.faults.lives.outages import Outage, during_a_load, dying, hanging
from tests.faults.lives.run import Run
from tests.faults.lives.test_random_kills import KILLS
from tests.testkit.history.metadata_log import NO_LINGER, metadata_log

QUIET_WITHIN_S = 300.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path / "node", extra_properties=NO_LINGER) as kafka:
        yield kafka


@pytest.fixture
def run(node: LocalKafka, lives_postgres: LocalPostgres, tmp_path: Path) -> Iterator[Run]:
    log = empty_log(lives_postgres)
    with Run(tmp_path, node.bootstrap_servers, log) as running:
        running.final_after_s, running.quiet_within_s = 95.0, QUIET_WITHIN_S
        yield running


async def test_killing_replicas_over_a_real_broker_leaves_nothing_wrong(run: Run, node: LocalKafka):
    replicas = [await asyncio.to_thread(run.serve) for _ in range(3)]
    reborn: list[Outage] = [dying(one.kill, one.start, 0.0) for one in replicas]
    await during_a_load(run, (KILLS // len(reborn)) * reborn, between_s=0.5)
    evidence = await run.judge(lambda: metadata_log(node.directory))
    assert any(one.was_recovered for one in evidence.audit.entities)


async def test_a_broker_that_hangs_and_dies_leaves_nothing_wrong(run: Run, node: LocalKafka):
    replicas = [await asyncio.to_thread(run.serve) for _ in range(2)]
    frozen: list[Outage] = [hanging(one.freeze, one.thaw, 30.0) for one in replicas]
    paused = [hanging(node.pause, node.resume, seconds) for seconds in (5.0, 20.0, 40.0)]
    killed = dying(node.kill, node.start, 1.0)
    await during_a_load(run, [*paused, killed, *frozen, killed], between_s=5.0)
    evidence = await run.judge(lambda: metadata_log(node.directory))
    assert evidence.oracle.records
