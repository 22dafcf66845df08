"""A real controller and two real brokers fail under load, with the real 95 s."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from app.domain.alterations import ClientQuotaAlteration
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import (
    QUICK_START,
    java_command,
    jvm_environment,
    logging_text,
    properties_text,
    run_tool,
)
from app.localdev.kafka_admin import silent_admin
from app.localdev.postgres import LocalPostgres
from app.localdev.processes import HOST, ManagedProcess, free_ports
from tests.faults.crash_recovery.conftest import empty_log
from tests.faults.crash_recovery.run import Outage, Run, during_a_load, out, reborn
from tests.testkit.event_loops import in_a_thread
from tests.testkit.history.events import metadata_log
from tests.testkit.kafka import barrier_of, entity, setting, unique
from tests.testkit.patience import PATIENT
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, KafkaProxy, kafka_proxy

pytestmark = pytest.mark.long

CONTROLLER: Final = 100
BROKERS: Final = (1, 2)
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"

_READY_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1


class Node(ManagedProcess):
    """One process: a controller or a broker."""

    def __init__(self, directory: Path, properties: dict[str, str]) -> None:
        super().__init__(f"Node {properties['node.id']}", directory / "node.log")
        self.directory = directory
        directory.mkdir()
        self._properties = directory / "server.properties"
        properties = {**properties, "log.dirs": str(directory / "data")}
        self._properties.write_text(properties_text(properties))
        self._logging = directory / "log4j2.properties"
        self._logging.write_text(logging_text(None))
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self._properties)]
        done = run_tool("kafka.tools.StorageTool", *arguments)
        assert done.returncode == 0, done.stdout

    def run(self) -> None:
        """Start it; it may take a while until it answers."""
        options = ["-Xmx320m", f"-Dlog4j2.configurationFile={self._logging}", QUICK_START]
        command = [*java_command("kafka.Kafka", *options), str(self._properties)]
        self.spawn(command, directory=self.directory, environ=jvm_environment())


class Quorum:
    """The nodes, and the connections from the brokers to the controller."""

    def __init__(self, directory: Path, proxy: KafkaProxy, controller_port: int) -> None:
        self.proxy = proxy
        ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.bootstrap_servers = ",".join(f"{HOST}:{port}" for port in ports.values())
        voters = f"{CONTROLLER}@{proxy.bootstrap_servers}"
        controller = _controller_properties(voters, controller_port, proxy)
        self.controller = Node(directory / "controller", controller)
        self.brokers = {
            number: Node(directory / f"broker-{number}", _broker_properties(voters, number, port))
            for number, port in ports.items()
        }

    def start(self) -> None:
        """Start everything, and wait until both brokers are there."""
        for node in (self.controller, *self.brokers.values()):
            node.run()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        client = silent_admin(self.bootstrap_servers)
        deadline = time.monotonic() + _READY_DEADLINE_S
        while len(client.list_topics(timeout=_READY_DEADLINE_S).brokers) < len(BROKERS):
            assert time.monotonic() < deadline, self.controller.last_lines()
            time.sleep(_POLL_S)

    def stop(self) -> None:
        for node in (*self.brokers.values(), self.controller):
            node.resume()
            node.stop()


@contextmanager
def quorum(directory: Path) -> Iterator[Quorum]:
    (port,) = free_ports(1)
    with in_a_thread(partial(kafka_proxy, f"{HOST}:{port}")) as proxy:
        running = Quorum(directory, proxy, port)
        try:
            running.start()
            yield running
        finally:
            running.stop()


def _common(voters: str) -> dict[str, str]:
    return {
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def _controller_properties(voters: str, port: int, proxy: KafkaProxy) -> dict[str, str]:
    return {
        **_common(voters),
        "process.roles": "controller",
        "node.id": str(CONTROLLER),
        "listeners": f"CONTROLLER://{HOST}:{port}",
        "advertised.listeners": f"CONTROLLER://{proxy.bootstrap_servers}",
        "controller.quorum.append.linger.ms": "0",
    }


def _broker_properties(voters: str, number: int, port: int) -> dict[str, str]:
    return {
        **_common(voters),
        "process.roles": "broker",
        "node.id": str(number),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
    }


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
    return 2 * [out(nodes.controller.kill, nodes.controller.run, 1.0)]


def killed_brokers(nodes: Quorum) -> list[Outage]:
    return [out(broker.kill, broker.run, 1.0) for broker in nodes.brokers.values()]


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
    replicas = [await run.serve() for _ in range(2)]
    outages = [*SCENARIOS[scenario](nodes), *map(reborn, replicas)]
    await during_a_load(run, outages, between_s=4.0)
    await asyncio.to_thread(nodes.wait_until_ready)
    evidence = await run.judge()
    assert evidence.records


async def test_a_read_behind_a_barrier_is_never_older_than_a_change_through_another_broker(
    nodes: Quorum,
):
    brokers = Brokers(KafkaSettings(nodes.bootstrap_servers), patience=PATIENT)
    admin = KafkaClientQuotaAdmin(brokers)
    barrier = barrier_of(brokers, admin)
    present = barrier.present
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
