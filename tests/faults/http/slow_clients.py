"""500 clients that send too much, or too little, or without an end: a process of their own."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from tests.testkit.http import head

CLIENTS: Final = 500
DEADLINE_S: Final = 300.0
_PIECE: Final = b"%x\r\n%s\r\n" % (65536, b" " * 65536)
_PIECES: Final = 129
"""8 MiB, and one more."""

_POST: Final = head(
    "POST /quotas/alterations HTTP/1.1",
    "Content-Type: application/json",
    "Transfer-Encoding: chunked",
)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def too_much(connection: Connection) -> None:
    """Send more than may be sent."""
    _, writer = connection
    writer.write(_POST)
    for _ in range(_PIECES):
        writer.write(_PIECE)
        await writer.drain()


async def half_a_body(connection: Connection) -> None:
    """Send as much of a body as is read at once, and no more."""
    _, writer = connection
    writer.write(_POST + _PIECE[:60_000])


async def half_a_header(connection: Connection) -> None:
    """Send a header that goes on and on."""
    _, writer = connection
    writer.write(_POST[:-2])
    while True:
        await asyncio.sleep(1.0)
        writer.write(b"X-More: 1\r\n")
        await writer.drain()


BAD: Final[dict[str, Callable[[Connection], Awaitable[None]]]] = {
    "oversized bodies": too_much,
    "bodies that stop half-way": half_a_body,
    "headers that do not end": half_a_header,
}


async def all_at_once(url: str, kind: str) -> Counter[str]:
    """Let them all come, and count how each of them ends."""
    parts, endings = urlsplit(url), Counter[str]()

    async def bad() -> None:
        async with connected(str(parts.hostname), int(parts.port or 0)) as connection:
            sending = asyncio.create_task(until_refused(BAD[kind], connection))
            endings[await ending(connection)] += 1
            sending.cancel()

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(bad() for _ in range(CLIENTS)))
    return endings


async def ending(connection: Connection) -> str:
    """Return the status that was answered, or that nothing was."""
    reader, _ = connection
    try:
        line = await reader.readline()
    except ConnectionError:
        return "closed"
    return f"answered {line.split()[1].decode()}" if line else "closed"


@asynccontextmanager
async def connected(host: str, port: int) -> AsyncIterator[Connection]:
    """Connect for the length of the block."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def until_refused(
    send: Callable[[Connection], Awaitable[None]], connection: Connection
) -> None:
    """Send until the service does not take any more."""
    with suppress(ConnectionError):
        await send(connection)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(all_at_once(*sys.argv[1:]))))
