"""A real broker is killed and hangs, and replicas are killed, while clients alter."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.conftest import empty_log
from tests.faults.crash_recovery.run import (
    FINAL_AFTER_FAULTS_S,
    Run,
    ask,
    during_a_load,
    out,
    reborn,
)
from tests.testkit.class_archive import shared_classes
from tests.testkit.event_loops import in_a_thread, until
from tests.testkit.fake_kafka.server import ALTER
from tests.testkit.history.events import NO_LINGER, Write, metadata_log
from tests.testkit.kafka import eventually, unique
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, KafkaProxy, kafka_proxy
from tests.testkit.sizes import size

KEY = "producer_byte_rate"
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


async def test_what_held_before_a_lost_answer_is_neither_claimed_nor_restored(
    run: Run, proxy: KafkaProxy
):
    """1000 holds when 3000 is asked for, and 2000 when that is sent."""
    name = unique("before")
    entity = ClientQuotaEntity.of({"user": name})
    steady = await run.serve()
    assert await run.alter(steady, Write(entity, KEY, 1000.0))
    mortal = await run.serve(test_failpoint="before_intent:stop")
    asking = asyncio.create_task(run.alter(mortal, Write(entity, KEY, 3000.0)))
    await until(mortal.is_frozen)
    assert await run.alter(steady, Write(entity, KEY, 2000.0))
    proxy.hold(TO_CLIENT, ALTER)
    mortal.thaw()

    async def stored() -> float:
        answer = await ask(steady, "GET", "/quotas", params={"filter": f"user={name}"})
        return float(answer.json()["quotas"][0]["values"][KEY])

    async def newest() -> Any:
        answer = await ask(steady, "GET", "/audit", params={"entity": f"user={name}"})
        return answer.json()["rows"][0]

    await eventually(stored, 3000.0)
    mortal.kill()
    proxy.pass_all()
    proxy.hang_up()
    assert await asking is None
    await run.until_quiet()
    row = await newest()
    assert (row["outcome"], row["before"], row["after"]) == ("applied", None, {KEY: 3000})
    path = f"/quotas/alterations/{row['alteration_id']}"
    document = (await ask(steady, "GET", path)).json()
    assert (document["results"][0]["before"], document["results"][0]["changed"]) == (None, None)
    assert document["history"][-1]["detail"].startswith("observed: applied")
    reverted = await ask(steady, "POST", f"{path}/revert", json={})
    assert (reverted.status_code, reverted.json()["code"]) == (409, "before-unknown")
    assert await stored() == 3000.0


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
