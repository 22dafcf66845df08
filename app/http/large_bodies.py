"""Room for large bodies: few of them are held at a time, and one of each caller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

SMALL_BYTES: Final = 16 * 1024
"""Bodies up to this size need no room. Whoever waits for room holds that much, and the piece that
passed it: what hundreds of large bodies at a time add up to."""

AT_ONCE: Final = 4


class LargeBodies:
    """Lets callers wait until there is room; a caller's own bodies come one after the other."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._own: dict[str, _Queue] = {}

    @asynccontextmanager
    async def room(self, principal: str) -> AsyncIterator[None]:
        """Hold the room for one body while the block runs."""
        own = self._own.setdefault(principal, _Queue())
        own.members += 1
        try:
            async with own.lock, self._room:
                yield
        finally:
            own.members -= 1
            if not own.members:
                del self._own[principal]


class _Queue:
    """The bodies of one caller: those that wait and the one that is read."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0
