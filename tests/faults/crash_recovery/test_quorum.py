"""A real controller and two real brokers fail under load, with the real 95 s."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from app.domain.alterations import ClientQuotaAlteration
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaMetadataQuorum
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.postgres import LocalPostgres
from app.service.alterations.current_values import Barrier, CurrentValues
from tests.faults.crash_recovery.conftest import empty_log
from tests.faults.crash_recovery.quorum import Quorum, quorum
from tests.faults.crash_recovery.run import Outage, Run, during_a_load, out, reborn
from tests.testkit.history.metadata_log import metadata_log
from tests.testkit.kafka import entity, setting, unique
from tests.testkit.proxy import TO_BROKER, TO_CLIENT

pytestmark = pytest.mark.long

ENVELOPE = 58
"""What a broker forwards goes in these. Source: ApiKeys."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    with quorum(tmp_path_factory.mktemp("quorum")) as running:
        yield running


@pytest.fixture
def run(nodes: Quorum, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Run]:
    read_log = partial(metadata_log, nodes.controller.directory)
    with Run(tmp_path, nodes.bootstrap_servers, empty_log(postgres), read_log) as running:
        running.final_after_s, running.quiet_within_s = 95.0, 300.0
        yield running


def paused(nodes: Quorum, seconds: float) -> list[Outage]:
    return [out(nodes.controller.pause, nodes.controller.resume, seconds)]


def cut(nodes: Quorum) -> list[Outage]:
    return 5 * [out(nodes.proxy.hang_up, nodes.proxy.hang_up, 0.2)]


def held_and_cut(nodes: Quorum) -> list[Outage]:
    def cut_off() -> None:
        nodes.proxy.hang_up()
        nodes.proxy.pass_all()

    return 5 * [out(partial(nodes.proxy.hold, TO_BROKER, ENVELOPE), cut_off, 1.5)]


def answers_lost(nodes: Quorum) -> list[Outage]:
    lose = partial(nodes.proxy.close_at, TO_CLIENT, ENVELOPE, times=1)
    return 8 * [out(lose, nodes.proxy.pass_all, 1.0)]


def killed_controller(nodes: Quorum) -> list[Outage]:
    return 2 * [out(nodes.controller.kill, nodes.controller.start, 1.0)]


def killed_brokers(nodes: Quorum) -> list[Outage]:
    return [out(broker.kill, broker.start, 1.0) for broker in nodes.brokers.values()]


def paused_brokers(nodes: Quorum) -> list[Outage]:
    return [out(broker.pause, broker.resume, 20.0) for broker in nodes.brokers.values()]


SCENARIOS: dict[str, Callable[[Quorum], list[Outage]]] = {
    "the controller is paused for 5 s": partial(paused, seconds=5.0),
    "the controller is paused for 35 s": partial(paused, seconds=35.0),
    "the brokers lose their connection to the controller": cut,
    "what the brokers forward is held, then their connection is cut": held_and_cut,
    "answers of the controller to the brokers are lost": answers_lost,
    "the controller is killed": killed_controller,
    "the brokers are killed": killed_brokers,
    "the brokers are paused for 20 s": paused_brokers,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_quorum_that_fails_leaves_nothing_wrong(run: Run, nodes: Quorum, scenario: str):
    replicas = [await asyncio.to_thread(run.serve) for _ in range(2)]
    outages = [*SCENARIOS[scenario](nodes), *map(reborn, replicas)]
    await during_a_load(run, outages, between_s=4.0)
    await asyncio.to_thread(nodes.wait_until_ready)
    evidence = await run.judge()
    assert evidence.records


async def test_a_read_behind_a_barrier_is_never_older_than_a_change_through_another_broker(
    nodes: Quorum,
):
    brokers = Brokers(KafkaSettings(nodes.bootstrap_servers))
    admin = KafkaClientQuotaAdmin(brokers)
    present = CurrentValues(admin)
    barrier = Barrier(KafkaMetadataQuorum(brokers), present)
    of, stale = entity(user=unique()), 0
    for value in range(1, 601):
        await alter_through(admin, 1, setting(of, producer_byte_rate=value))
        stale += (await present.read([of], 2)).get(of) != {"producer_byte_rate": value}
        await alter_through(admin, 1, setting(of, producer_byte_rate=value + 1000))
        read = await barrier.read([of], broker_id=2)
        assert (read.values[of], read.quorum is None) == (
            {"producer_byte_rate": value + 1000},
            False,
        )
    await brokers.close()
    assert stale, "without a barrier nothing was stale either"


async def alter_through(
    admin: KafkaClientQuotaAdmin, broker_id: int, alteration: ClientQuotaAlteration
) -> None:
    await admin.alter_client_quotas([alteration], validate_only=False, broker_id=broker_id)
