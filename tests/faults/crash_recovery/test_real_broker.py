"""A real broker is killed and hangs, and replicas are killed, while clients alter."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.conftest import empty_log
from tests.faults.crash_recovery.run import FINAL_AFTER_FAULTS_S, Run, during_a_load, out, reborn
from tests.testkit.class_archive import shared_classes
from tests.testkit.event_loops import in_a_thread
from tests.testkit.fake_kafka.server import ALTER
from tests.testkit.history.events import NO_LINGER, metadata_log
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, KafkaProxy, kafka_proxy
from tests.testkit.sizes import size

KILLS = 500
LASTS_S, PAUSED_FOR_S = size((0.6, 1.5), (1.0, 2.5))
"""A verdict is final after 6 s: one node that is its own controller applies nothing after its
pause."""


@pytest.fixture
def proxy(broker: LocalKafka) -> Iterator[KafkaProxy]:
    with in_a_thread(partial(kafka_proxy, broker.bootstrap_servers)) as running:
        yield running


@pytest.fixture
def run(
    broker: LocalKafka, proxy: KafkaProxy, postgres: LocalPostgres, tmp_path: Path
) -> Iterator[Run]:
    read_log = partial(metadata_log, broker.directory)
    with Run(tmp_path, proxy.bootstrap_servers, empty_log(postgres), read_log) as running:
        running.final_after_s = FINAL_AFTER_FAULTS_S
        yield running


async def test_a_real_broker_that_is_killed_paused_and_cut_off_leaves_nothing_wrong(
    run: Run, broker: LocalKafka, proxy: KafkaProxy
):
    replicas = [await run.serve() for _ in range(2)]
    killed_replicas = [reborn(replica) for replica in replicas]
    lost = out(partial(proxy.close_at, TO_CLIENT, ALTER, times=3), proxy.pass_all, LASTS_S)
    never = out(partial(proxy.close_at, TO_BROKER, ALTER, times=3), proxy.pass_all, LASTS_S)
    torn = out(partial(proxy.cut_after, 6, TO_CLIENT, ALTER, times=3), proxy.pass_all, LASTS_S)
    slow = out(partial(proxy.delay, 0.3, TO_CLIENT, ALTER), proxy.pass_all, LASTS_S)
    held = out(partial(proxy.hold, TO_CLIENT, ALTER), proxy.hang_up, LASTS_S)
    paused = out(broker.pause, broker.resume, PAUSED_FOR_S)
    killed = out(broker.kill, broker.start)
    everything = [lost, *killed_replicas, never, torn, paused, slow, held, killed]
    await during_a_load(run, [*everything, *killed_replicas], between_s=size(0.6, 1.0))
    proxy.pass_all()
    evidence = await run.judge()
    assert evidence.records
    assert any(entity.was_recovered for entity in evidence.audit.entities)


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[LocalKafka]:
    with LocalKafka(
        tmp_path / "node", extra_properties=NO_LINGER, java_options=shared_classes()
    ) as kafka:
        yield kafka


@pytest.fixture
def run_of_95_s(own_node: LocalKafka, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Run]:
    """Replicas on that broker, which wait as long as in production before they conclude."""
    read_log = partial(metadata_log, own_node.directory)
    with Run(tmp_path, own_node.bootstrap_servers, empty_log(postgres), read_log) as running:
        running.final_after_s, running.quiet_within_s = 95.0, 300.0
        yield running


@pytest.mark.long
async def test_killing_replicas_over_a_real_broker_leaves_nothing_wrong(run_of_95_s: Run):
    run = run_of_95_s
    replicas = [await run.serve() for _ in range(3)]
    kills = [reborn(replica) for replica in replicas]
    await during_a_load(run, (KILLS // len(kills)) * kills, between_s=0.5)
    evidence = await run.judge()
    assert any(entity.was_recovered for entity in evidence.audit.entities)


@pytest.mark.long
async def test_a_broker_that_hangs_and_dies_leaves_nothing_wrong(
    run_of_95_s: Run, own_node: LocalKafka
):
    run = run_of_95_s
    replicas = [await run.serve() for _ in range(2)]
    frozen = [out(replica.freeze, replica.thaw, 30.0) for replica in replicas]
    paused = [out(own_node.pause, own_node.resume, seconds) for seconds in (5.0, 20.0, 40.0)]
    killed = out(own_node.kill, own_node.start, 1.0)
    await during_a_load(run, [*paused, killed, *frozen, killed], between_s=5.0)
    evidence = await run.judge()
    assert evidence.records
