"""A TCP proxy that decodes Kafka's frames: it delays, cuts and holds them by rules.

It stands before one broker (or before the controller, for its brokers), unencrypted and without
SASL. Metadata responses are rewritten, so that a client that begins at the proxy stays with
it and the broker needs no listener for that. Every method may be called from any thread.
"""

import asyncio
import struct
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from kafka.protocol.metadata import MetadataResponse

from app.localdev.processes import HOST
from tests.testkit.event_loops import OwnLoop, any_thread
from tests.testkit.fake_kafka.server import METADATA


class Direction(Enum):
    """Which direction a frame goes."""

    TO_BROKER = auto()
    TO_CLIENT = auto()


TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT


class Action(Enum):
    """What becomes of a frame."""

    PASS = auto()
    CUT = auto()
    HOLD = auto()


@dataclass(eq=False)
class Rule:
    """One rule; the first that fits counts.

    Attributes:
        direction: Requests or answers.
        api_key: Of the request, or of the request that is answered; null is any.
        action: What becomes of it.
        delay_s: How long it is held back before that, in seconds.
        cut_after: With CUT: how many of its bytes pass, its length included.
        times: How often it happens; null is always.
    """

    direction: Direction
    api_key: int | None
    action: Action = Action.PASS
    delay_s: float = 0.0
    cut_after: int = 0
    times: int | None = None

    def fits(self, direction: Direction, api_key: int) -> bool:
        return self.direction is direction and self.api_key in (None, api_key) and self.times != 0


PASSING = Rule(TO_BROKER, None)

_LENGTH = struct.Struct(">i")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CutError(Exception):
    """The connection ends here."""


_USUAL_ENDS = (asyncio.IncompleteReadError, OSError, CutError)


class KafkaProxy(OwnLoop):
    """One proxy; newer rules come before older ones until ``pass_all``."""

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self.port = 0
        self._upstream = _address(upstream)
        self._upstreams = {self._upstream}
        self._rules: list[Rule] = []
        self._changed = asyncio.Event()
        self._seen: Counter[tuple[Direction, int]] = Counter()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def seen(self, direction: Direction, api_key: int) -> int:
        """Return how many frames of a kind have come, whatever became of them."""
        return self._seen[direction, api_key]

    @any_thread
    def pass_all(self) -> None:
        """Remove every rule, and pass the frames that are held."""
        self._rules.clear()
        self._changed.set()

    @any_thread
    def add(self, rule: Rule) -> None:
        self._rules.insert(0, rule)

    def delay(self, seconds: float, direction: Direction, api_key: int | None = None) -> None:
        """Keep each frame back; the order within a connection stays."""
        self.add(Rule(direction, api_key, delay_s=seconds))

    def cut_after(
        self, size: int, direction: Direction, api_key: int | None, *, times: int | None = None
    ) -> None:
        """Pass that many bytes of a frame, its length included, and close the connection."""
        self.add(Rule(direction, api_key, Action.CUT, cut_after=size, times=times))

    def close_at(
        self, direction: Direction, api_key: int | None, *, times: int | None = None
    ) -> None:
        self.cut_after(0, direction, api_key, times=times)

    def hold(self, direction: Direction, api_key: int | None = None) -> None:
        """Keep frames until ``pass_all``, as a network that comes back."""
        self.add(Rule(direction, api_key, Action.HOLD))

    @any_thread
    def hang_up(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    @any_thread
    def lead_to(self, upstream: str) -> None:
        """Lead new connections to another ``host:port``; those that are open stay."""
        self._upstream = _address(upstream)
        self._upstreams.add(self._upstream)

    async def close(self) -> None:
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass the frames of one connection until either side closes."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        writers = {writer}
        try:
            broker = await asyncio.open_connection(*self._upstream)
            writers.add(broker[1])
            self._writers |= writers
            await self._pipe((reader, writer), broker)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers -= writers
            for each in writers:
                each.transport.abort()

    async def _pipe(self, client: Streams, broker: Streams) -> None:
        asked: deque[tuple[int, int]] = deque()
        pumps = [
            asyncio.create_task(self._requests(client[0], broker[1], asked)),
            asyncio.create_task(self._answers(broker[0], client[1], asked)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            ends = await asyncio.gather(*pumps, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, _USUAL_ENDS):
                raise end

    async def _requests(
        self,
        client: asyncio.StreamReader,
        broker: asyncio.StreamWriter,
        asked: deque[tuple[int, int]],
    ) -> None:
        while True:
            payload = await _frame(client)
            api_key, version = struct.unpack_from(">hh", payload)
            rule = await self._rule_for(TO_BROKER, api_key)
            asked.append((api_key, version))
            await _pass_on(broker, payload, rule)

    async def _answers(
        self,
        broker: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        asked: deque[tuple[int, int]],
    ) -> None:
        while True:
            payload = await _frame(broker)
            api_key, version = asked.popleft()
            rule = await self._rule_for(TO_CLIENT, api_key)
            if api_key == METADATA:
                payload = self._rerouted(payload, version)
            await _pass_on(client, payload, rule)

    async def _rule_for(self, direction: Direction, api_key: int) -> Rule:
        """Count a frame, and return what becomes of it once it is held back no longer."""
        self._seen[direction, api_key] += 1
        rule = self._first(direction, api_key)
        if rule.times is not None:
            rule.times -= 1
        await asyncio.sleep(rule.delay_s)
        while rule.action is Action.HOLD:
            self._changed.clear()
            await self._changed.wait()
            rule = self._first(direction, api_key)
        return rule

    def _first(self, direction: Direction, api_key: int) -> Rule:
        return next((rule for rule in self._rules if rule.fits(direction, api_key)), PASSING)

    def _rerouted(self, payload: bytes, version: int) -> bytes:
        """Let the broker that a Metadata answer tells of be reached through this proxy."""
        head = _LENGTH.size + MetadataResponse.flexible_version_q(version)
        answer: Any = MetadataResponse.decode(payload[head:], version=version)
        for broker in answer.brokers:
            if (broker.host, broker.port) in self._upstreams:
                broker.host, broker.port = HOST, self.port
        return payload[:head] + bytes(answer.encode())


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


async def _pass_on(writer: asyncio.StreamWriter, payload: bytes, rule: Rule) -> None:
    frame = _LENGTH.pack(len(payload)) + payload
    if rule.action is not Action.CUT:
        writer.write(frame)
        await writer.drain()
        return
    writer.write(frame[: rule.cut_after])
    await writer.drain()
    # An orderly end, so that what was written is not thrown away with the connection.
    writer.write_eof()
    raise CutError


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def kafka_proxy(upstream: str) -> AsyncIterator[KafkaProxy]:
    """Run a proxy before ``host:port``."""
    proxy = KafkaProxy(upstream)
    server = await asyncio.start_server(proxy.serve, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
