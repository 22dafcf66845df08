"""The bare wire: the service's own transport and messages, with nothing around them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from app.domain.alterations import ClientQuotaAlteration, Outcome, Quotas
from app.domain.entities import ClientQuotaFilter
from app.kafka.config import KafkaSettings
from app.kafka.connection import LARGEST_ANSWER_BYTES, BrokerConnection, framed_body
from app.kafka.handshake import connect
from app.kafka.quota_messages import (
    ALTER_API,
    DESCRIBE_API,
    NEWEST_VERSION,
    alter_body,
    describe_body,
    read_described,
    read_verdicts,
)
from app.service.ports.metrics import Uncounted
from benchmarks.errors import BenchmarkError

_POLL_S = 0.002
_DEADLINE_S = 30.0


class WireQuotas:
    """One connection that is warm: encode, send, wait, decode."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, bootstrap_servers: str) -> Self:
        """Connect to the first of the servers."""
        settings = KafkaSettings(bootstrap_servers)
        return cls(await connect(settings.addresses[0], settings, None, Uncounted()))

    async def describe(self, quota_filter: ClientQuotaFilter) -> Quotas:
        """Return the matching quotas.

        Raises:
            BenchmarkError: The broker refused.
        """
        payload = await self.receive(quota_filter)
        answer = read_described(payload, NEWEST_VERSION)
        if answer.quotas is None:
            raise BenchmarkError(f"the broker refused a describe: {answer.error_message}")
        return answer.quotas

    async def receive(self, quota_filter: ClientQuotaFilter) -> bytearray:
        """Return the answer to a describe in version 1 as it came, not decoded."""
        return await self._ask(DESCRIBE_API, describe_body(quota_filter, NEWEST_VERSION))

    async def alter(self, alterations: Sequence[ClientQuotaAlteration]) -> None:
        """Alter, and make sure that the broker did.

        Raises:
            BenchmarkError: It did not.
        """
        body = alter_body(alterations, NEWEST_VERSION, validate_only=False)
        payload = await self._ask(ALTER_API, body)
        verdicts = read_verdicts(payload, NEWEST_VERSION, validate_only=False)
        outcomes = {verdicts[alteration.entity].outcome for alteration in alterations}
        if outcomes != {Outcome.APPLIED}:
            raise BenchmarkError(f"the broker did not apply an alteration: {outcomes}")

    async def until_readable(self, quota_filter: ClientQuotaFilter, key: str, value: float) -> None:
        """Wait until the one entity that matches has this value.

        Raises:
            BenchmarkError: It has not after 30 s.
        """

        async def is_readable() -> bool:
            quotas = await self.describe(quota_filter)
            return [values.get(key) for values in quotas.values()] == [value]

        await self.until(is_readable)

    async def until(
        self,
        is_readable: Callable[[], Awaitable[bool]],
        *,
        poll_s: float = _POLL_S,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        """Wait until the broker shows what was altered.

        Raises:
            BenchmarkError: It does not before the deadline.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    if await is_readable():
                        return
                    await asyncio.sleep(poll_s)
        except TimeoutError as error:
            raise BenchmarkError("the broker does not show what it acknowledged") from error

    async def _ask(self, api_key: int, body: bytes) -> bytearray:
        correlation_id = self._connection.next_correlation_id()
        frame = framed_body(api_key, NEWEST_VERSION, correlation_id, body)
        return await self._connection.send(frame, LARGEST_ANSWER_BYTES)

    def close(self) -> None:
        """Drop the connection."""
        self._connection.abort()
