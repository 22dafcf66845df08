"""The bare wire, and the entities of a user and a client-id that are described and altered."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self
from urllib.parse import urlencode

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome, Quotas
from app.domain.entities import (
    ALL_ENTITIES,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from app.kafka.config import KafkaSettings
from app.kafka.connection import LARGEST_ANSWER_BYTES, BrokerConnection, framed
from app.kafka.handshake import connect
from app.kafka.quota_messages import (
    alter_frame,
    describe_request,
    read_described,
    read_verdicts,
)
from app.metrics import BrokerMetrics
from benchmarks.measures import BenchmarkError

VERSION = 1
"""Of both requests."""

KEYS = ("producer_byte_rate", "consumer_byte_rate")


@dataclass(frozen=True)
class Entities:
    """The entities of one arm: arms share none, so that each one's changes are its own."""

    arm: str
    count: int = 1
    keys: tuple[str, ...] = KEYS

    def names(self, index: int) -> Mapping[str, str]:
        """Return the entity as in JSON."""
        return {"user": f"{self.arm}-user-{index:05}", "client-id": f"{self.arm}-client-{index:05}"}

    def exact(self, index: int) -> ClientQuotaFilter:
        """Return the strict filter of one entity."""
        return ClientQuotaFilter(
            tuple(
                ClientQuotaFilterComponent.of_entity(kind, name)
                for kind, name in self.names(index).items()
            ),
            strict=True,
        )

    def exact_query(self, index: int, *, max_age_ms: int = 0) -> str:
        """Return the same filter for ``GET /quotas``."""
        filters = [("filter", f"{kind}={name}") for kind, name in self.names(index).items()]
        options = [("strict", "true"), ("max_age_ms", str(max_age_ms))]
        return urlencode([*filters, *options], safe="=")

    def alterations(self, value: int) -> tuple[ClientQuotaAlteration, ...]:
        """Return the alterations that set each key of each entity."""
        return tuple(self.alteration(index, value) for index in range(self.count))

    def alteration(self, index: int, value: int) -> ClientQuotaAlteration:
        """Return the one that sets each key of one entity."""
        ops = tuple(Op(key, Decimal(value)) for key in self.keys)
        return ClientQuotaAlteration(ClientQuotaEntity.of(self.names(index)), ops)

    def body(self, value: int, *, wait: str) -> bytes:
        """Return the same alterations for ``POST /quotas/alterations``."""
        ops = [{"key": key, "value": value} for key in self.keys]
        alterations = [{"entity": self.names(index), "ops": ops} for index in range(self.count)]
        return json.dumps({"alterations": alterations, "wait": wait}).encode()

    def kafka_configs(self, value: int) -> list[str]:
        """Return the same alteration of the first entity for ``kafka-configs``."""
        names = self.names(0)
        entity = ["--entity-type", "users", "--entity-name", names["user"]]
        entity += ["--entity-type", "clients", "--entity-name", names["client-id"]]
        return [*entity, "--alter", "--add-config", ",".join(f"{key}={value}" for key in self.keys)]


_POLL_S = 0.002
_DEADLINE_S = 30.0
_MOST = 10_000 // len(KEYS)
"""Entities in a request; a controller takes 10,000 records. Source: QuorumController."""


class WireQuotas:
    """One connection that is warm: encode, send, wait, decode."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, bootstrap_servers: str) -> Self:
        """Connect to the first of the servers."""
        settings = KafkaSettings(bootstrap_servers)
        return cls(await connect(settings.addresses[0], settings, None, BrokerMetrics()))

    async def describe(self, quota_filter: ClientQuotaFilter) -> Quotas:
        """Return the matching quotas.

        Raises:
            BenchmarkError: The broker refused.
        """
        payload = await self.receive(quota_filter)
        answer = read_described(payload, VERSION)
        if answer.quotas is None:
            raise BenchmarkError(f"the broker refused a describe: {answer.error_message}")
        return answer.quotas

    async def receive(self, quota_filter: ClientQuotaFilter) -> bytearray:
        """Return the answer to a describe in version 1 as it came, not decoded."""
        return await self._ask(describe_request(quota_filter))

    async def alter(self, alterations: Sequence[ClientQuotaAlteration]) -> None:
        """Alter, and make sure that the broker did.

        Raises:
            BenchmarkError: It did not.
        """
        correlation_id = self._connection.next_correlation_id()
        frame = alter_frame(alterations, VERSION, correlation_id, validate_only=False)
        payload = await self._connection.send(frame, LARGEST_ANSWER_BYTES)
        verdicts = read_verdicts(payload, VERSION, validate_only=False)
        outcomes = {verdicts[alteration.entity].outcome for alteration in alterations}
        if outcomes != {Outcome.APPLIED}:
            raise BenchmarkError(f"the broker did not apply an alteration: {outcomes}")

    async def store(self, entities: Entities, value: int) -> None:
        """Store the entities, and wait until the last one shows."""
        await self._alter_in_steps(entities.alterations(value))
        await self.until_readable(entities, value)

    async def keep_only(self, stored: Entities) -> None:
        """Remove every other entity, and wait until they are gone."""
        wanted = {ClientQuotaEntity.of(stored.names(index)) for index in range(stored.count)}
        quotas = await self.describe(ALL_ENTITIES)
        removals = [
            ClientQuotaAlteration(entity, tuple(Op(key, remove=True) for key in values))
            for entity, values in quotas.items()
            if entity not in wanted
        ]
        await self._alter_in_steps(removals)

        async def gone() -> bool:
            return (await self.describe(ALL_ENTITIES)).keys() <= wanted

        await self.until(gone)

    async def _alter_in_steps(self, alterations: Sequence[ClientQuotaAlteration]) -> None:
        for begin in range(0, len(alterations), _MOST):
            await self.alter(alterations[begin : begin + _MOST])

    async def until_readable(self, entities: Entities, value: int) -> None:
        """Wait until the last of the entities has this value.

        Raises:
            BenchmarkError: It has not after 30 s.
        """
        last = entities.exact(entities.count - 1)

        async def is_readable() -> bool:
            quotas = await self.describe(last)
            return [values.get(entities.keys[-1]) for values in quotas.values()] == [value]

        await self.until(is_readable)

    async def until(self, is_readable: Callable[[], Awaitable[bool]]) -> None:
        """Wait until the broker shows what was altered.

        Raises:
            BenchmarkError: It does not within 30 s.
        """
        try:
            async with asyncio.timeout(_DEADLINE_S):
                while True:
                    if await is_readable():
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise BenchmarkError("the broker does not show what it acknowledged") from error

    async def _ask(self, request: Any) -> bytearray:
        frame = framed(request, VERSION, self._connection.next_correlation_id())
        return await self._connection.send(frame, LARGEST_ANSWER_BYTES)

    def close(self) -> None:
        """Drop the connection."""
        self._connection.abort()
