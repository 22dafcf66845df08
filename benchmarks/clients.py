"""Clients that alter one entity after the other, each waiting for its own answer."""

import asyncio
import gc
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.altered import raise_unless_applied, was_not_sent
from benchmarks.http_connection import HttpConnection, prepared
from benchmarks.wire import WireQuotas
from benchmarks.workload import KEYS, Entities

_VALUES: Final = itertools.count(10_000_000)

_ENTITIES: Final = 8
"""How many a client alters in turns, so that a change shows before the next one of its entity."""

_MOST_REPEATS: Final = 5


class Client(ABC):
    """One connection and entities that no other client alters.

    Attributes:
        altered: The values that were set last.
        repeats: How often something was not sent and was repeated.
    """

    def __init__(self, name: str) -> None:
        self._turns = itertools.cycle([Entities(f"{name}-{turn}") for turn in range(_ENTITIES)])
        self.altered: dict[Entities, int] = {}
        self.repeats = 0

    async def alter(self) -> float:
        """Set new values of the next entity; return the milliseconds that it took."""
        entity, value = next(self._turns), next(_VALUES)
        took_ms = await self._timed(entity, value)
        self.altered[entity] = value
        return took_ms

    @abstractmethod
    async def warm_up(self) -> None:
        """See that the connection is there: others may have been busy for long."""

    @abstractmethod
    async def _timed(self, entity: Entities, value: int) -> float:
        """Alter; what only a client has to do is not timed."""

    @abstractmethod
    def close(self) -> None:
        """Drop the connection."""


class BareClient(Client):
    """AlterClientQuotas over a connection of its own."""

    def __init__(self, name: str, wire: WireQuotas) -> None:
        super().__init__(name)
        self._wire = wire

    async def warm_up(self) -> None:
        """Do nothing: a broker keeps connections for minutes."""

    async def _timed(self, entity: Entities, value: int) -> float:
        alterations = entity.alterations(value)
        begun = time.perf_counter()
        await self._wire.alter(alterations)
        return (time.perf_counter() - begun) * 1000

    def close(self) -> None:
        """See ``Client``."""
        self._wire.close()


class PostClient(Client):
    """``POST /quotas/alterations`` with ``wait: none`` over a connection of its own.

    What was not sent, as when the machine is too busy for the database to answer in time, is
    repeated, and all of it counts as the time of the alteration.
    """

    def __init__(self, name: str, service: HttpConnection, token: str) -> None:
        super().__init__(name)
        self._service = service
        self._token = token

    async def warm_up(self) -> None:
        """See ``Client``."""
        await self._service.warm_up()

    async def _timed(self, entity: Entities, value: int) -> float:
        body = entity.body(value, wait="none")
        request = prepared("POST", "/quotas/alterations", token=self._token, body=body)
        begun = time.perf_counter()
        answer = await self._service.exchange(request)
        for _ in range(_MOST_REPEATS):
            if not was_not_sent(answer):
                break
            self.repeats += 1
            answer = await self._service.exchange(request)
        raise_unless_applied(answer)
        return (time.perf_counter() - begun) * 1000

    def close(self) -> None:
        """See ``Client``."""
        self._service.close()


@dataclass(frozen=True)
class Window:
    """What clients did in a while: how long each alteration took, and all of it."""

    took_ms: Sequence[float]
    seconds: float


async def busy(clients: Sequence[Client], seconds: float) -> Window:
    """Let clients alter for so long; what was begun is finished and counts."""
    await asyncio.gather(*(client.warm_up() for client in clients))
    gc.disable()
    try:
        begun = time.perf_counter()
        taken = await asyncio.gather(*(_alter_until(client, begun + seconds) for client in clients))
        return Window(list(itertools.chain(*taken)), time.perf_counter() - begun)
    finally:
        gc.enable()


async def _alter_until(client: Client, end: float) -> list[float]:
    taken = []
    while time.perf_counter() < end:
        taken.append(await client.alter())
    return taken


async def until_readable(clients: Sequence[Client], wire: WireQuotas) -> None:
    """Wait until the broker shows everything that the clients have set."""
    for client in clients:
        for entity, value in client.altered.items():
            await wire.until_readable(entity.exact(0), KEYS[-1], value)
        client.altered.clear()
