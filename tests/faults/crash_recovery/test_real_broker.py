"""A real broker is killed and hangs, and replicas are killed, while clients alter."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.conftest import empty_log
from tests.faults.crash_recovery.outages import Outage, during_a_load, dying, hanging
from tests.faults.crash_recovery.run import Run
from tests.testkit.class_archive import shared_classes
from tests.testkit.event_loops import in_a_thread
from tests.testkit.fake_kafka.server import ALTER
from tests.testkit.history.metadata_log import NO_LINGER, metadata_log
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, KafkaProxy, kafka_proxy

KILLS = 500
QUIET_WITHIN_S = 300.0
PAUSE_S = 2.5
FINAL_AFTER_S = 6.0
"""One node that is its own controller applies nothing later than the end of its pause."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker of these tests' own."""
    folder = tmp_path_factory.mktemp("crash-recovery")
    with LocalKafka(
        folder, extra_properties=NO_LINGER, heap="384m", java_options=shared_classes()
    ) as kafka:
        yield kafka


@pytest.fixture
def proxy(node: LocalKafka) -> Iterator[KafkaProxy]:
    """What stands between the replicas and the broker."""
    with in_a_thread(partial(kafka_proxy, node.bootstrap_servers)) as running:
        yield running


@pytest.fixture
def run(proxy: KafkaProxy, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Run]:
    """Replicas on the real broker."""
    log = empty_log(postgres)
    with Run(tmp_path, proxy.bootstrap_servers, log) as running:
        yield running


async def test_a_real_broker_that_is_killed_paused_and_cut_off_leaves_nothing_wrong(
    run: Run, node: LocalKafka, proxy: KafkaProxy
):
    run.final_after_s = FINAL_AFTER_S
    replicas = [await asyncio.to_thread(run.serve) for _ in range(2)]
    reborn: list[Outage] = [dying(replica.kill, replica.start, 0.0) for replica in replicas]
    lost = hanging(partial(proxy.close_at, TO_CLIENT, ALTER, times=3), proxy.pass_all, 1.0)
    never = hanging(partial(proxy.close_at, TO_BROKER, ALTER, times=3), proxy.pass_all, 1.0)
    torn = hanging(partial(proxy.cut_after, 6, TO_CLIENT, ALTER, times=3), proxy.pass_all, 1.0)
    slow = hanging(partial(proxy.delay, 0.3, TO_CLIENT, ALTER), proxy.pass_all, 1.0)
    held = hanging(partial(proxy.hold, TO_CLIENT, ALTER), proxy.hang_up, 1.0)
    paused = hanging(node.pause, node.resume, PAUSE_S)
    killed = dying(node.kill, node.start, 0.0)
    everything = [lost, *reborn, never, torn, paused, slow, held, killed, *reborn]
    await during_a_load(run, everything)
    proxy.pass_all()
    evidence = await run.judge(lambda: metadata_log(node.directory))
    assert evidence.oracle.records
    assert any(entity.was_recovered for entity in evidence.audit.entities)


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[LocalKafka]:
    """A broker of one test."""
    with LocalKafka(
        tmp_path / "node", extra_properties=NO_LINGER, java_options=shared_classes()
    ) as kafka:
        yield kafka


@pytest.fixture
def run_of_95_s(own_node: LocalKafka, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Run]:
    """Replicas on that broker, which wait as long as in production before they conclude."""
    log = empty_log(postgres)
    with Run(tmp_path, own_node.bootstrap_servers, log) as running:
        running.final_after_s, running.quiet_within_s = 95.0, QUIET_WITHIN_S
        yield running


@pytest.mark.long
async def test_killing_replicas_over_a_real_broker_leaves_nothing_wrong(
    run_of_95_s: Run, own_node: LocalKafka
):
    run = run_of_95_s
    replicas = [await asyncio.to_thread(run.serve) for _ in range(3)]
    reborn: list[Outage] = [dying(replica.kill, replica.start, 0.0) for replica in replicas]
    await during_a_load(run, (KILLS // len(reborn)) * reborn, between_s=0.5)
    evidence = await run.judge(lambda: metadata_log(own_node.directory))
    assert any(entity.was_recovered for entity in evidence.audit.entities)


@pytest.mark.long
async def test_a_broker_that_hangs_and_dies_leaves_nothing_wrong(
    run_of_95_s: Run, own_node: LocalKafka
):
    run = run_of_95_s
    replicas = [await asyncio.to_thread(run.serve) for _ in range(2)]
    frozen: list[Outage] = [hanging(replica.freeze, replica.thaw, 30.0) for replica in replicas]
    paused = [hanging(own_node.pause, own_node.resume, seconds) for seconds in (5.0, 20.0, 40.0)]
    killed = dying(own_node.kill, own_node.start, 1.0)
    await during_a_load(run, [*paused, killed, *frozen, killed], between_s=5.0)
    evidence = await run.judge(lambda: metadata_log(own_node.directory))
    assert evidence.oracle.records
