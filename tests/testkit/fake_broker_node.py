"""One broker of a fake cluster: it listens, hangs, dies and comes back."""

import asyncio
import socket

from tests.testkit.fake_broker import METADATA, FakeBroker, Reply, framed
from tests.testkit.fake_broker_apis import Answering, Apis
from tests.testkit.fake_broker_faults import Answer
from tests.testkit.fake_broker_messages import encoded
from tests.testkit.fake_broker_world import World


class FakeNode(FakeBroker):
    """Lives on one port.

    Attributes:
        apis: What it answers.
        delays: How long an answer is kept back, in seconds, by API key.
    """

    def __init__(self, node_id: int, world: World) -> None:
        self.apis = Apis(node_id, world)
        answering = self.apis.answering.items()
        super().__init__({key: self._replying(key, each) for key, each in answering})
        self.healthy = dict(self.replies)
        self.node_id = node_id
        self.delays: dict[int, float] = {}
        self._world = world
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._listener: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self._running = asyncio.Event()
        self._running.set()
        self.port = 0

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self.port = self._listener.getsockname()[1]
        self._opening = asyncio.create_task(self._open(self._listener))

    async def _open(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self.serve, sock=listener)

    def stop(self) -> None:
        """Die: close every connection, accept no more, and forget what waits."""
        if self._opening is not None:
            self._opening.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._listener is not None:
            self._listener.close()
        self.apis.queue.forget()
        self.hang_up()
        for task in self._tasks:
            task.cancel()

    def freeze(self) -> None:
        """Hang: connections stay open, and nothing is done."""
        self._running.clear()
        self.apis.queue.freeze()

    def thaw(self) -> None:
        """Go on."""
        self._running.set()
        self.apis.queue.thaw()

    async def close(self) -> None:
        """Stop, and wait until nothing is left."""
        self.stop()
        self.apis.queue.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await super().serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()

    async def answer(
        self, api_key: int, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer one request, unless this broker hangs."""
        await self._running.wait()
        if api_key == METADATA:
            self.cluster_id = self._world.cluster_id
            self.peers = dict(self._world.listed)
            self.fenced = self.node_id not in self.peers
        await super().answer(api_key, writer, correlation_id, request)

    def _replying(self, api_key: int, answering: Answering) -> Reply:
        async def reply(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
            answer = await answering(writer, request)
            await asyncio.sleep(self.delays.get(api_key, 0.0))
            await self._running.wait()
            if answer is Answer.CLOSE:
                writer.close()
            elif answer is not Answer.SILENCE:
                writer.write(framed(correlation_id, encoded(answer, request)))

        return reply
