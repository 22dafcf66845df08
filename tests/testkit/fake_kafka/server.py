"""A TCP server that shakes hands like a broker and then answers as a test says.

A real broker cannot be made to answer nonsense.
"""

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeAclsResponse,
    DescribeClientQuotasResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

Reply = Callable[[asyncio.StreamWriter, int, bytes], Awaitable[None]]
"""What to do with a request: where to write, its correlation id, its bytes after the length."""

METADATA, SASL_HANDSHAKE, API_VERSIONS, DESCRIBE_ACLS = 3, 17, 18, 29
DESCRIBE_CONFIGS, SASL_AUTHENTICATE, DESCRIBE, ALTER, DESCRIBE_QUORUM = 32, 36, 48, 49, 55

HEALTHY_VERSIONS = {
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


def framed(correlation_id: int, body: bytes) -> bytes:
    """Return an answer with its length and correlation id."""
    payload = struct.pack(">i", correlation_id) + body
    return struct.pack(">i", len(payload)) + payload


def sending(body: bytes) -> Reply:
    """Answer with these bytes after the correlation id."""

    async def reply(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
        writer.write(framed(correlation_id, body))

    return reply


def answering(message: Any, version: int, *, flexible: bool = True) -> Reply:
    """Answer with a message of kafka-python, with the header that flexible versions have."""
    return sending((b"\0" if flexible else b"") + bytes(message.encode(version=version)))


def raw(data: bytes) -> Reply:
    """Answer with these bytes and nothing else."""

    async def reply(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
        writer.write(data)

    return reply


async def closing(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
    """Close the connection instead of answering."""
    writer.close()


async def silent(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
    """Say nothing."""


class FakeBroker:
    """Counts what arrives by API key; ``replies`` replaces the answer to a key.

    It is broker 7; ``peers`` are the ports of further brokers that it tells of, by id. One that is
    ``fenced`` does not tell of itself.
    """

    def __init__(
        self,
        replies: Mapping[int, Reply],
        versions: Mapping[int, tuple[int, int]] = HEALTHY_VERSIONS,
    ) -> None:
        self.node_id = 7
        self.cluster_id = "fake"
        self.received: dict[int, int] = {}
        self.peers: dict[int, int] = {}
        self.fenced = False
        self.port = 0
        self._versions = versions
        self.replies = {API_VERSIONS: self._api_versions, METADATA: self._metadata, **replies}
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def connected(self) -> bool:
        """Whether anybody still is."""
        return bool(self._writers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self._writers.add(writer)
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(length)
                api_key, _, correlation_id = struct.unpack(">hhi", request[:8])
                self.received[api_key] = self.received.get(api_key, 0) + 1
                await self.answer(api_key, writer, correlation_id, request)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def answer(
        self, api_key: int, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer one request."""
        await self.replies[api_key](writer, correlation_id, request)

    def hang_up(self) -> None:
        """Close every connection."""
        for writer in list(self._writers):
            writer.close()

    def stop_answering(self) -> None:
        """Close what is open, and every connection to come at its first request."""
        self.replies[API_VERSIONS] = closing
        self.hang_up()

    def published_offset(self) -> int:
        """Return the last offset of the metadata log that its answers rest on; -1 is none."""
        return -1

    async def _api_versions(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        (version,) = struct.unpack(">h", request[2:4])
        newest = self._versions[API_VERSIONS][1]
        error_code = 35 if version > newest else 0
        answer = ApiVersionsResponse(
            error_code=error_code,
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self._versions.items()
            ],
            finalized_features_epoch=self.published_offset(),
        )
        body = answer.encode(version=0 if error_code else version)
        writer.write(framed(correlation_id, bytes(body)))

    async def _metadata(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        itself = {} if self.fenced else {self.node_id: self.port}
        broker: Any = MetadataResponse.MetadataResponseBroker
        answer = MetadataResponse(
            brokers=[
                broker(node_id=node_id, host="127.0.0.1", port=port, rack=None)
                for node_id, port in {**itself, **self.peers}.items()
            ],
            cluster_id=self.cluster_id,
            controller_id=self.node_id,
            topics=[],
        )
        writer.write(framed(correlation_id, b"\0" + bytes(answer.encode(version=12))))


@asynccontextmanager
async def fake_broker(
    replies: Mapping[int, Reply] | None = None,
    versions: Mapping[int, tuple[int, int]] = HEALTHY_VERSIONS,
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


DEADLINE_S: Final = 30.0


def acl_error(code: int) -> Reply:
    """Refuse to tell the ACLs."""
    answer = DescribeAclsResponse(
        throttle_time_ms=0, error_code=code, error_message=None, resources=[]
    )
    return answering(answer, 3)


def describe_error(code: int, message: str | None = None) -> Reply:
    """Refuse to describe."""
    answer = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=message, entries=None
    )
    return answering(answer, 1)


def versions_before_2_6() -> Reply:
    """Offer neither DescribeClientQuotas nor AlterClientQuotas."""
    key: Any = ApiVersionsResponse.ApiVersion
    spans = {api: span for api, span in HEALTHY_VERSIONS.items() if api not in {DESCRIBE, ALTER}}
    keys = [
        key(api_key=api, min_version=low, max_version=high) for api, (low, high) in spans.items()
    ]
    return answering(ApiVersionsResponse(error_code=0, api_keys=keys), 3, flexible=False)


def verdict(code: int = 0, message: str | None = None) -> Reply:
    """Answer an alteration with this code for each entity."""

    async def reply(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
        entry: Any = AlterClientQuotasResponse.EntryData
        entries = [
            entry(
                error_code=code,
                error_message=message,
                entity=[
                    entry.EntityData(
                        entity_type=component.entity_type, entity_name=component.entity_name
                    )
                    for component in each.entity
                ],
            )
            for each in _decoded(request).entries
        ]
        answer = AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)
        writer.write(framed(correlation_id, b"\0" + bytes(answer.encode(version=1))))

    return reply


class Alterations:
    """Answers alterations as set, and remembers them; a validation is always passed.

    Attributes:
        count: How many came that would change something.
        arrived: Set from the first on.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.count = 0
        self.arrived = threading.Event()

    async def __call__(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer one."""
        if _decoded(request).validate_only:
            await verdict()(writer, correlation_id, request)
            return
        self.count += 1
        self.arrived.set()
        await self.answer(writer, correlation_id, request)

    async def answer(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer one that would change something."""
        await self._reply(writer, correlation_id, request)

    def wait(self) -> None:
        """Wait for the first."""
        assert self.arrived.wait(DEADLINE_S), "the alteration did not arrive"


class HeldAlterations(Alterations):
    """Keeps the answers back until the test lets them go."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self._released = threading.Event()

    async def answer(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer when the test says so."""
        await asyncio.to_thread(self._released.wait, DEADLINE_S)
        await super().answer(writer, correlation_id, request)

    def release(self) -> None:
        """Let the answers go."""
        self._released.set()


def _decoded(request: bytes) -> Any:
    return AlterClientQuotasRequest.decode(request, version=1, header=True)
