"""A proxy before Postgres that cuts the connection at a commit."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict

_COMMITS = (b"COMMIT", b"record_intents", b"append_events")


class CommitCutter:
    """Forwards bytes to Postgres until a commit comes by, or a statement that commits itself.

    Attributes:
        forwards: Whether that still reaches the server. Its answer does not come back:
            the client's connection is closed, or stays silent where it was swallowed.
        url: The database's URL through the proxy.
    """

    def __init__(self, url: str, *, forwards: bool) -> None:
        self.forwards = forwards
        self.url = ""
        self._target = conninfo_to_dict(url)
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_connect, "127.0.0.1", 0)
        target = {**self._target, "port": self._server.sockets[0].getsockname()[1]}
        self.url = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**target)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._server.close()
        await asyncio.gather(*self._tasks)

    def _on_connect(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.ensure_future(self._serve(near, back)))

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, onward = await asyncio.open_connection(self._target["host"], self._target["port"])
        answers = asyncio.create_task(_forward(far, back))
        data = await near.read(65536)
        while data and not any(commit in data for commit in _COMMITS):
            onward.write(data)
            data = await near.read(65536)
        answers.cancel()
        await asyncio.wait({answers})
        if data:
            await self._lose(data, far, onward)
        for writer in (onward, back):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _lose(
        self, commit: bytes, far: asyncio.StreamReader, onward: asyncio.StreamWriter
    ) -> None:
        if self.forwards:
            onward.write(commit)
            await far.read(1)
        else:
            await self._over.wait()


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
