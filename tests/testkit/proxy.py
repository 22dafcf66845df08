"""A TCP proxy that decodes Kafka's frames: it delays, drops, cuts and holds them by rules.

It stands before one broker (or before the controller, for its brokers), unencrypted, with or
without SASL. Metadata responses are rewritten, so that a client that begins at the proxy stays with
it and the broker needs no listener for that. Every method may be called from any thread.
"""

import asyncio
import struct
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from kafka.protocol.metadata import MetadataResponse

from app.localdev.processes import HOST, free_ports
from tests.testkit.event_loops import OwnLoop, any_thread
from tests.testkit.fake_kafka.server import METADATA


class Direction(Enum):
    """Which direction a frame goes."""

    TO_BROKER = auto()
    TO_CLIENT = auto()


class FrameAction(Enum):
    """What becomes of a frame."""

    PASS = auto()
    DROP = auto()
    CLOSE = auto()
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
    action: FrameAction = FrameAction.PASS
    delay_s: float = 0.0
    cut_after: int = 0
    times: int | None = None

    def fits(self, direction: Direction, api_key: int) -> bool:
        """Tell whether the rule is about such a frame."""
        return self.direction is direction and self.api_key in (None, api_key) and self.times != 0

    def use(self) -> None:
        """Count it."""
        if self.times is not None:
            self.times -= 1


PASSING = Rule(Direction.TO_BROKER, None)


class Rules:
    """The rules of one proxy, the newest first."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Put a rule before the others."""
        self._rules.insert(0, rule)

    def clear(self) -> None:
        """Let everything pass."""
        self._rules.clear()

    def of(self, direction: Direction, api_key: int) -> Rule:
        """Return what counts for a frame, without counting it."""
        return next((rule for rule in self._rules if rule.fits(direction, api_key)), PASSING)


Address = tuple[str, int]

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_CORRELATION_ID = 4


class PendingRequest(NamedTuple):
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
        judge: Callable[[Direction, int], Awaitable[Rule]],
        routes: Mapping[Address, Address],
    ) -> None:
        self._client_in, self._client_out = client
        self._broker_in, self._broker_out = broker
        self._judge = judge
        self._routes = routes
        self._waiting: deque[PendingRequest] = deque()

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
            rule = await self._judge(Direction.TO_BROKER, api_key)
            if rule.action is not FrameAction.DROP:
                self._waiting.append(PendingRequest(api_key, version))
                await _pass_on(self._broker_out, payload, rule)

    async def _answers(self) -> None:
        while True:
            payload = await _frame(self._broker_in)
            asked = self._waiting.popleft()
            rule = await self._judge(Direction.TO_CLIENT, asked.api_key)
            if asked.api_key == METADATA:
                payload = _rerouted(payload, asked.version, self._routes)
            if rule.action is not FrameAction.DROP:
                await _pass_on(self._client_out, payload, rule)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


async def _pass_on(writer: asyncio.StreamWriter, payload: bytes, rule: Rule) -> None:
    frame = _LENGTH.pack(len(payload)) + payload
    match rule.action:
        case FrameAction.CLOSE:
            raise CutError
        case FrameAction.CUT:
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


TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT
BOTH_DIRECTIONS = (TO_BROKER, TO_CLIENT)

Routes = dict[Address, Address]


class KafkaProxy:
    """One proxy; newer rules come before older ones until ``pass_all``."""

    def __init__(self, upstream: str, port: int, routes: Routes) -> None:
        self.own_loop = OwnLoop()
        self.port = port
        self._upstream = _address(upstream)
        self._routes = routes
        self._rules = Rules()
        self._changed = asyncio.Event()
        self._passed: Counter[tuple[Direction, int]] = Counter()
        self._pipes: set[Pipe] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._refusing = False
        routes[self._upstream] = (HOST, port)

    @property
    def bootstrap_servers(self) -> str:
        """Where the proxy listens."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections go through it."""
        return len(self._pipes)

    def seen(self, direction: Direction, api_key: int) -> int:
        """Return how many frames of a kind have come, whatever became of them."""
        return self._passed[direction, api_key]

    @any_thread
    def pass_all(self) -> None:
        """Remove every rule, and pass the frames that are held."""
        self._rules.clear()
        self._refusing = False
        self._changed.set()

    @any_thread
    def delay(self, seconds: float, direction: Direction, api_key: int | None = None) -> None:
        """Keep each frame back; the order within a connection stays."""
        self._rules.add(Rule(direction, api_key, delay_s=seconds))

    @any_thread
    def drop(
        self, direction: Direction, api_key: int | None = None, *, times: int | None = None
    ) -> None:
        """Swallow frames and keep the connection: ``drop(TO_CLIENT, 49)`` loses the answers."""
        self._rules.add(Rule(direction, api_key, FrameAction.DROP, times=times))

    @any_thread
    def close_at(
        self, direction: Direction, api_key: int | None = None, *, times: int | None = None
    ) -> None:
        """Drop the connection instead of forwarding a frame."""
        self._rules.add(Rule(direction, api_key, FrameAction.CLOSE, times=times))

    @any_thread
    def cut_after(
        self,
        size: int,
        direction: Direction,
        api_key: int | None = None,
        *,
        times: int | None = None,
    ) -> None:
        """Pass that many bytes of a frame, its length included, and drop the connection."""
        self._rules.add(Rule(direction, api_key, FrameAction.CUT, cut_after=size, times=times))

    @any_thread
    def hold(self, direction: Direction, api_key: int | None = None) -> None:
        """Keep frames until ``pass_all``, as a network that comes back."""
        self._rules.add(Rule(direction, api_key, FrameAction.HOLD))

    @any_thread
    def black_hole(self, directions: Sequence[Direction] = BOTH_DIRECTIONS) -> None:
        """Swallow everything, new connections' first words included."""
        for direction in directions:
            self._rules.add(Rule(direction, None, FrameAction.DROP))

    @any_thread
    def hang_up(self) -> None:
        """Drop every connection."""
        for pipe in list(self._pipes):
            pipe.abort()

    @any_thread
    def lead_to(self, upstream: str) -> None:
        """Lead new connections to another ``host:port``; those that are open stay."""
        self._upstream = _address(upstream)
        self._routes[self._upstream] = (HOST, self.port)

    @any_thread
    def refuse(self) -> None:
        """Drop every connection, and each new one at once, until ``pass_all``."""
        self._refusing = True
        self.hang_up()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def close(self) -> None:
        """Listen no more, and drop every connection."""
        if self._server is not None:
            self._server.close()
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if not self._refusing:
                upstream = await asyncio.open_connection(*self._upstream)
                await self._pipe(Pipe((reader, writer), upstream, self._judge, self._routes))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _pipe(self, pipe: Pipe) -> None:
        self._pipes.add(pipe)
        try:
            await pipe.run()
        finally:
            self._pipes.discard(pipe)

    async def _judge(self, direction: Direction, api_key: int) -> Rule:
        self._passed[direction, api_key] += 1
        rule = self._rules.of(direction, api_key)
        rule.use()
        await asyncio.sleep(rule.delay_s)
        while rule.action is FrameAction.HOLD:
            self._changed.clear()
            await self._changed.wait()
            rule = self._rules.of(direction, api_key)
        return rule


@asynccontextmanager
async def kafka_proxy(
    upstream: str, *, port: int | None = None, routes: Routes | None = None
) -> AsyncIterator[KafkaProxy]:
    """Run a proxy before ``host:port``; ``routes`` is shared by the proxies of one cluster."""
    listening = free_ports(1)[0] if port is None else port
    proxy = KafkaProxy(upstream, listening, {} if routes is None else routes)
    try:
        await proxy.open()
        yield proxy
    finally:
        await proxy.close()


@asynccontextmanager
async def kafka_proxies(bootstrap_servers: str) -> AsyncIterator[list[KafkaProxy]]:
    """Run a proxy before each of the brokers, in order."""
    routes: Routes = {}
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(kafka_proxy(upstream, routes=routes))
            for upstream in bootstrap_servers.split(",")
        ]


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
