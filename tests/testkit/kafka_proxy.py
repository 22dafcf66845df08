"""A TCP proxy that knows Kafka's frames: it delays, drops, cuts and holds what it is told to.

It stands before one broker (or before the controller, for its brokers), unencrypted, with or
without SASL. Metadata answers are rewritten, so that a client that begins at the proxy stays with
it and the broker needs no listener for that. Every method may be called from any thread.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from app.localdev.ports import HOST, free_ports
from tests.testkit.kafka_proxy_pipe import Address, Pipe
from tests.testkit.kafka_proxy_rules import Doing, Rule, Rules, Way
from tests.testkit.own_loop import Home, verb

TO_BROKER, TO_CLIENT = Way.TO_BROKER, Way.TO_CLIENT
BOTH_WAYS = (TO_BROKER, TO_CLIENT)

Routes = dict[Address, Address]


class KafkaProxy:
    """One proxy; newer rules come before older ones until ``pass_all``."""

    def __init__(self, upstream: str, port: int, routes: Routes) -> None:
        self.home = Home()
        self.port = port
        self._upstream = _address(upstream)
        self._routes = routes
        self._rules = Rules()
        self._changed = asyncio.Event()
        self._passed: Counter[tuple[Way, int]] = Counter()
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

    def seen(self, way: Way, api_key: int) -> int:
        """Return how many frames of a kind have come, whatever became of them."""
        return self._passed[way, api_key]

    @verb
    def pass_all(self) -> None:
        """Forget every rule; what was held goes on its way."""
        self._rules.clear()
        self._refusing = False
        self._changed.set()

    @verb
    def delay(self, seconds: float, way: Way, api_key: int | None = None) -> None:
        """Keep each frame back; the order within a connection stays."""
        self._rules.add(Rule(way, api_key, delay_s=seconds))

    @verb
    def drop(self, way: Way, api_key: int | None = None, *, times: int | None = None) -> None:
        """Swallow frames and keep the connection: ``drop(TO_CLIENT, 49)`` loses the answers."""
        self._rules.add(Rule(way, api_key, Doing.DROP, times=times))

    @verb
    def close_at(self, way: Way, api_key: int | None = None, *, times: int | None = None) -> None:
        """Drop the connection in place of passing a frame on."""
        self._rules.add(Rule(way, api_key, Doing.CLOSE, times=times))

    @verb
    def cut_after(
        self, size: int, way: Way, api_key: int | None = None, *, times: int | None = None
    ) -> None:
        """Pass that many bytes of a frame, its length included, and drop the connection."""
        self._rules.add(Rule(way, api_key, Doing.CUT, cut_after=size, times=times))

    @verb
    def hold(self, way: Way, api_key: int | None = None) -> None:
        """Keep frames until ``pass_all``, as a network that comes back."""
        self._rules.add(Rule(way, api_key, Doing.HOLD))

    @verb
    def black_hole(self, ways: Sequence[Way] = BOTH_WAYS) -> None:
        """Swallow everything, new connections' first words included."""
        for way in ways:
            self._rules.add(Rule(way, None, Doing.DROP))

    @verb
    def hang_up(self) -> None:
        """Drop every connection."""
        for pipe in list(self._pipes):
            pipe.abort()

    @verb
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

    async def _judge(self, way: Way, api_key: int) -> Rule:
        self._passed[way, api_key] += 1
        rule = self._rules.of(way, api_key)
        rule.use()
        await asyncio.sleep(rule.delay_s)
        while rule.doing is Doing.HOLD:
            self._changed.clear()
            await self._changed.wait()
            rule = self._rules.of(way, api_key)
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
