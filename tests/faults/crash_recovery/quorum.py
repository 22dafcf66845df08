"""A real cluster of one controller and two brokers, which reach it through a proxy."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from app.localdev.kafka_admin import silent_admin
from app.localdev.kafka_jvm import QUICK_START, java_command, jvm_environment, run_tool
from app.localdev.kafka_properties import logging_text, properties_text
from app.localdev.processes import HOST, ManagedProcess, free_ports
from tests.testkit.event_loops import in_a_thread
from tests.testkit.proxy import KafkaProxy, kafka_proxy

CONTROLLER: Final = 100
BROKERS: Final = (1, 2)
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"

_READY_DEADLINE_S: Final = 60.0
_STOP_DEADLINE_S: Final = 30.0
_POLL_S: Final = 0.1


class Node:
    """One process: a controller or a broker."""

    def __init__(self, directory: Path, properties: dict[str, str]) -> None:
        self.directory = directory
        directory.mkdir()
        self._properties = directory / "server.properties"
        properties = {**properties, "log.dirs": str(directory / "data")}
        self._properties.write_text(properties_text(properties))
        self._logging = directory / "log4j2.properties"
        self._logging.write_text(logging_text(None))
        self._child = ManagedProcess(f"Node {properties['node.id']}", directory / "node.log")
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self._properties)]
        done = run_tool("kafka.tools.StorageTool", *arguments)
        assert done.returncode == 0, done.stdout

    def start(self) -> None:
        """Start it; it may take a while until it answers."""
        options = ["-Xmx320m", f"-Dlog4j2.configurationFile={self._logging}", QUICK_START]
        command = [*java_command("kafka.Kafka", *options), str(self._properties)]
        self._child.start(command, directory=self.directory, environ=jvm_environment())

    def kill(self) -> None:
        self._child.kill()

    def pause(self) -> None:
        self._child.pause()

    def resume(self) -> None:
        self._child.resume()

    def stop(self) -> None:
        self._child.stop(signal.SIGTERM, _STOP_DEADLINE_S)

    def last_lines(self) -> str:
        return self._child.last_lines()


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
            node.start()
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
