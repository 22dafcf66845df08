"""The arms that alter; each call sets values that were never set before."""

import itertools
from abc import ABC
from typing import Final

from app.domain.alterations import ClientQuotaAlteration
from benchmarks.altered import raise_unless_applied
from benchmarks.competitors.jobs import alter_job
from benchmarks.competitors.process import WarmPeer
from benchmarks.http_connection import prepared
from benchmarks.rounds import Arm
from benchmarks.session import Session
from benchmarks.workload import Entities

_VALUES: Final = itertools.count(1_000_000)


class AlterArm(Arm, ABC):
    """An arm that has entities of its own, and waits untimed until its change shows."""

    def __init__(self, name: str, session: Session, entities: Entities, *, every: int = 1) -> None:
        super().__init__(name, every=every)
        self.session = session
        self.entities = entities
        self.value = 0

    async def prepare(self) -> None:
        """Choose the value."""
        self.value = next(_VALUES)

    async def settle(self) -> None:
        """Wait until the last entity shows it."""
        last = self.entities.exact(self.entities.count - 1)
        await self.session.wire.until_readable(last, self.entities.keys[-1], self.value)


class BareAlter(AlterArm):
    """AlterClientQuotas over the warm connection of the session."""

    async def prepare(self) -> None:
        """Choose the value; encoding it is timed, as it is in the service."""
        await super().prepare()
        self._alterations: tuple[ClientQuotaAlteration, ...] = self.entities.alterations(self.value)

    async def call(self) -> None:
        """Alter."""
        await self.session.wire.alter(self._alterations)


class PostAlter(AlterArm):
    """``POST /quotas/alterations`` over the warm connection of the session."""

    def __init__(self, name: str, session: Session, entities: Entities, *, wait: str) -> None:
        super().__init__(name, session, entities)
        self._wait = wait
        self._request = b""

    async def prepare(self) -> None:
        """Choose the value, write the request, and see that the connection is there."""
        await super().prepare()
        await self.session.service.warm_up()
        body = self.entities.body(self.value, wait=self._wait)
        token = self.session.stack.token
        self._request = prepared("POST", "/quotas/alterations", token=token, body=body)

    async def call(self) -> None:
        """Alter.

        Raises:
            BenchmarkError: It was not applied.
        """
        raise_unless_applied(await self.session.service.exchange(self._request))


class PeerAlter(AlterArm):
    """A warm peer; it measures its own call."""

    def __init__(self, session: Session, entities: Entities, peer: WarmPeer) -> None:
        super().__init__(peer.name, session, entities)
        self._peer = peer

    async def prepare(self) -> None:
        """Choose the value and write the job."""
        await super().prepare()
        self._job = alter_job(self.entities, self.value)

    async def call(self) -> float:
        """Alter."""
        return (await self._peer.ask(self._job)).ms
