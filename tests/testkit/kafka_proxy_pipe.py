"""One connection through the proxy: whole frames, each way."""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from kafka.protocol.metadata import MetadataResponse

from tests.testkit.fake_broker import METADATA
from tests.testkit.kafka_proxy_rules import Doing, Rule, Way

Address = tuple[str, int]

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_CORRELATION_ID = 4


class Asked(NamedTuple):
    """What of a request tells how to read its answer."""

    api_key: int
    version: int


class CutError(Exception):
    """The connection ends here."""


_USUAL_ENDS = (asyncio.IncompleteReadError, OSError, CutError)


class Pipe:
    """Two streams, and the requests that wait for their answers, in order."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        judge: Callable[[Way, int], Awaitable[Rule]],
        routes: Mapping[Address, Address],
    ) -> None:
        self._client_in, self._client_out = client
        self._broker_in, self._broker_out = broker
        self._judge = judge
        self._routes = routes
        self._waiting: deque[Asked] = deque()

    async def run(self) -> None:
        """Pass frames until either side closes."""
        pumps = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()
            for pump in pumps:
                pump.cancel()
            ends = await asyncio.gather(*pumps, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, _USUAL_ENDS):
                raise end

    def abort(self) -> None:
        """Drop both connections."""
        for writer in (self._client_out, self._broker_out):
            writer.transport.abort()

    async def _requests(self) -> None:
        while True:
            payload = await _frame(self._client_in)
            api_key, version, _ = _REQUEST.unpack_from(payload)
            rule = await self._judge(Way.TO_BROKER, api_key)
            if rule.doing is not Doing.DROP:
                self._waiting.append(Asked(api_key, version))
                await _pass_on(self._broker_out, payload, rule)

    async def _answers(self) -> None:
        while True:
            payload = await _frame(self._broker_in)
            asked = self._waiting.popleft()
            rule = await self._judge(Way.TO_CLIENT, asked.api_key)
            if asked.api_key == METADATA:
                payload = _rerouted(payload, asked.version, self._routes)
            if rule.doing is not Doing.DROP:
                await _pass_on(self._client_out, payload, rule)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


async def _pass_on(writer: asyncio.StreamWriter, payload: bytes, rule: Rule) -> None:
    frame = _LENGTH.pack(len(payload)) + payload
    match rule.doing:
        case Doing.CLOSE:
            raise CutError
        case Doing.CUT:
            writer.write(frame[: rule.cut_after])
            await writer.drain()
            # An orderly end, so that what was written is not thrown away with the connection.
            writer.write_eof()
            raise CutError
        case _:
            writer.write(frame)
            await writer.drain()


def _rerouted(payload: bytes, version: int, routes: Mapping[Address, Address]) -> bytes:
    """Let the brokers that a Metadata answer tells of be reached through their proxies."""
    head = _CORRELATION_ID + MetadataResponse.flexible_version_q(version)
    answer: Any = MetadataResponse.decode(payload[head:], version=version)
    for broker in answer.brokers:
        address = (broker.host, broker.port)
        broker.host, broker.port = routes.get(address, address)
    return payload[:head] + bytes(answer.encode())
