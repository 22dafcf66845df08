"""The ways to alter; each call sets values that were never set before."""

import asyncio
import itertools
from abc import ABC
from typing import Final

from app.domain.alterations import ClientQuotaAlteration
from app.localdev.kafka_jvm import run_tool
from benchmarks.altered import raise_unless_applied
from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import prepared
from benchmarks.rounds import Arm
from benchmarks.session import Session
from benchmarks.workload import KEYS, Entities

_VALUES: Final = itertools.count(1_000_000)


class _AlterArm(Arm, ABC):
    """An arm that has entities of its own, and waits untimed until its change shows."""

    def __init__(self, name: str, session: Session, entities: Entities, *, every: int = 1) -> None:
        super().__init__(name, every=every)
        self.session = session
        self.entities = entities
        self.value = 0

    async def prepare(self) -> None:
        self.value = next(_VALUES)

    async def settle(self) -> None:
        last = self.entities.exact(self.entities.count - 1)
        await self.session.wire.until_shown(last, KEYS[-1], self.value)


class BareAlter(_AlterArm):
    """AlterClientQuotas over the warm connection of the session."""

    async def prepare(self) -> None:
        """Choose the value; encoding it is timed, as it is in the service."""
        await super().prepare()
        self._alterations: tuple[ClientQuotaAlteration, ...] = self.entities.alterations(self.value)

    async def call(self) -> None:
        """Alter."""
        await self.session.wire.alter(self._alterations)


class PostAlter(_AlterArm):
    """``POST /quotas/alterations`` over the warm connection of the session."""

    def __init__(self, name: str, session: Session, entities: Entities, *, wait: str) -> None:
        super().__init__(name, session, entities)
        self._wait = wait
        self._request = b""

    async def prepare(self) -> None:
        """Choose the value and write the request."""
        await super().prepare()
        body = self.entities.body(self.value, wait=self._wait)
        token = self.session.stack.token
        self._request = prepared("POST", "/quotas/alterations", token=token, body=body)

    async def call(self) -> None:
        """Alter.

        Raises:
            BenchmarkError: It was not applied.
        """
        raise_unless_applied(await self.session.service.exchange(self._request))


class ToolAlter(_AlterArm):
    """A run of kafka-configs: its Java process from beginning to end."""

    async def call(self) -> None:
        """Alter the first entity.

        Raises:
            BenchmarkError: The tool failed.
        """
        servers = ("--bootstrap-server", self.session.stack.bootstrap_servers)
        arguments = (*servers, *self.entities.kafka_configs(self.value))
        done = await asyncio.to_thread(run_tool, "kafka.admin.ConfigCommand", *arguments)
        if done.returncode != 0:
            raise BenchmarkError(f"kafka-configs failed:\n{done.stdout}")
