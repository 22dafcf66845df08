"""A TCP server that shakes hands like a broker and then answers as a test says.

A real broker cannot be made to answer nonsense.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from kafka.protocol.metadata import MetadataResponse

from tests.testkit.fake_kafka.messages import encoded, framed, versions_answer

Reply = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]
"""What to do with a request: where to write, and its bytes after the length."""

METADATA, SASL_HANDSHAKE, API_VERSIONS, DESCRIBE_ACLS = 3, 17, 18, 29
DESCRIBE_CONFIGS, SASL_AUTHENTICATE, DESCRIBE, ALTER, DESCRIBE_QUORUM = 32, 36, 48, 49, 55

HEALTHY_VERSIONS: Final = {
    METADATA: (0, 12),
    SASL_HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 3),
    DESCRIBE_ACLS: (1, 3),
    DESCRIBE_CONFIGS: (1, 4),
    SASL_AUTHENTICATE: (0, 2),
    DESCRIBE: (0, 1),
    ALTER: (0, 1),
    DESCRIBE_QUORUM: (0, 2),
}
BEFORE_2_6: Final = {
    api: span for api, span in HEALTHY_VERSIONS.items() if api not in {DESCRIBE, ALTER}
}


def answering(message: Any, version: int | None = None) -> Reply:
    """Answer with a message of kafka-python, in the request's version by default."""

    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(encoded(message, request, version))

    return reply


def sending(body: bytes) -> Reply:
    """Answer with these bytes after the correlation id."""

    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(framed(request, body))

    return reply


def raw(data: bytes) -> Reply:
    """Answer with these bytes and nothing else."""

    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(data)

    return reply


async def closing(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Close the connection instead of answering."""
    writer.close()


async def silent(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Say nothing."""


class FakeBroker:
    """Counts what arrives by API key; ``replies`` replaces the answer to a key.

    It is broker 7; ``peers`` are the ports of further brokers that it tells of, by id.
    """

    def __init__(
        self,
        replies: Mapping[int, Reply],
        versions: dict[int, tuple[int, int]] = HEALTHY_VERSIONS,
    ) -> None:
        self.node_id = 7
        self.cluster_id = "fake"
        self.received: Counter[int] = Counter()
        self.peers: dict[int, int] = {}
        self.port = 0
        self._versions = versions
        self.replies = {API_VERSIONS: self._api_versions, METADATA: self._metadata, **replies}
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connected(self) -> bool:
        return bool(self._writers)

    @property
    def listed(self) -> dict[int, int]:
        """The port of each broker that it tells of."""
        return {self.node_id: self.port, **self.peers}

    @property
    def published_offset(self) -> int:
        """The last offset of the metadata log that its answers rest on; -1 is none."""
        return -1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(length)
                (api_key,) = struct.unpack(">h", request[:2])
                self.received[api_key] += 1
                await self.answer(api_key, writer, request)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def answer(self, api_key: int, writer: asyncio.StreamWriter, request: bytes) -> None:
        await self.replies[api_key](writer, request)

    def hang_up(self) -> None:
        for writer in list(self._writers):
            writer.close()

    async def _api_versions(self, writer: asyncio.StreamWriter, request: bytes) -> None:
        (version,) = struct.unpack(">h", request[2:4])
        unsupported = version > self._versions[API_VERSIONS][1]
        answer = versions_answer(
            self._versions,
            error_code=35 if unsupported else 0,
            published_offset=self.published_offset,
        )
        writer.write(encoded(answer, request, 0 if unsupported else version))

    async def _metadata(self, writer: asyncio.StreamWriter, request: bytes) -> None:
        broker: Any = MetadataResponse.MetadataResponseBroker
        answer = MetadataResponse(
            brokers=[
                broker(node_id=node_id, host="127.0.0.1", port=port, rack=None)
                for node_id, port in self.listed.items()
            ],
            cluster_id=self.cluster_id,
            controller_id=self.node_id,
            topics=[],
        )
        writer.write(encoded(answer, request))


@asynccontextmanager
async def fake_broker(
    replies: Mapping[int, Reply] | None = None,
    versions: dict[int, tuple[int, int]] = HEALTHY_VERSIONS,
) -> AsyncIterator[FakeBroker]:
    """Run a fake broker on a free port."""
    broker = FakeBroker(replies or {}, versions)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        broker.hang_up()
        await server.wait_closed()
