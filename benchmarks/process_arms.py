"""Alterations from a shell: each is a process from its start to its end."""

import asyncio
import os
from abc import ABC, abstractmethod

from app.java import find_java
from app.localdev.jars import class_path
from app.localdev.kafka_jvm import jvm_environment
from benchmarks.alter_arms import AlterArm
from benchmarks.altered import raise_unless_applied
from benchmarks.competitors.jobs import alter_job, read_result
from benchmarks.competitors.peer import Peer
from benchmarks.competitors.process import Start, run_to_end
from benchmarks.http_connection import OK, Answer
from benchmarks.session import Session
from benchmarks.workload import Entities


class _ProcessAlter(AlterArm, ABC):
    """What a process says of itself is read after the clock has stopped."""

    async def prepare(self) -> None:
        """Choose the value and write the command line."""
        await super().prepare()
        self._start = self.start()

    async def call(self) -> None:
        """Alter.

        Raises:
            BenchmarkError: The process failed.
        """
        self._output = await asyncio.to_thread(run_to_end, self._start)

    async def settle(self) -> None:
        """Check the output of the process, and wait until the change is visible."""
        self.check(self._output)
        await super().settle()

    @abstractmethod
    def start(self) -> Start:
        """Return what is run."""

    @abstractmethod
    def check(self, output: str) -> None:
        """Make sure that the change was made.

        Raises:
            BenchmarkError: It was not.
        """


class ToolAlter(_ProcessAlter):
    """kafka-configs: its Java process, without the shell scripts around it."""

    def start(self) -> Start:
        """Alter the first entity, with the heap and the collector of Kafka's own script."""
        jars = os.pathsep.join(str(jar) for jar in class_path())
        java = [str(find_java()), "-Xmx256M", "-server", "-XX:+UseG1GC", "-cp", jars]
        servers = ["--bootstrap-server", self.session.stack.bootstrap_servers]
        arguments = self.entities.kafka_configs(self.value)
        command = [*java, "kafka.admin.ConfigCommand", *servers, *arguments]
        return Start(command, jvm_environment())

    def check(self, output: str) -> None:
        """Nothing to do: it has exit codes."""


class CurlAlter(_ProcessAlter):
    """``curl`` to ``POST /quotas/alterations`` with ``wait: none``."""

    def start(self) -> Start:
        """Alter the entities; the body comes from standard input."""
        stack = self.session.stack
        url = f"http://127.0.0.1:{stack.service_port}/quotas/alterations"
        headers = ["-H", f"Authorization: Bearer {stack.token}"]
        headers += ["-H", "Content-Type: application/json"]
        command = ["curl", "-sS", "--fail", *headers, "--data-binary", "@-", url]
        body = self.entities.body(self.value, wait="none").decode()
        return Start(command, os.environ, body)

    def check(self, output: str) -> None:
        """See ``_ProcessAlter``."""
        raise_unless_applied(Answer(OK, output.encode()))


class PeerProcessAlter(_ProcessAlter):
    """A peer that starts, does one job, and ends."""

    def __init__(self, name: str, session: Session, entities: Entities, peer: Peer) -> None:
        super().__init__(name, session, entities)
        self._peer = peer

    def start(self) -> Start:
        """Alter the entities."""
        command = [*self._peer.command, self.session.stack.bootstrap_servers]
        return Start(command, self._peer.environ, alter_job(self.entities, self.value) + "\n")

    def check(self, output: str) -> None:
        """See ``_ProcessAlter``."""
        read_result(self.name, output)
