"""Slots for large bodies: few of them are in memory at a time, and one of each caller.

Very large bodies have slots of their own: callers who send them slowly delay nobody else's.
"""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

SMALL_BYTES: Final = 16 * 1024
"""Bodies up to this size need no slot. Whoever waits for one holds that much, and the chunk that
passed it: what hundreds of large bodies at a time add up to."""

AT_ONCE: Final = 4
VERY_LARGE_BYTES: Final = 1024 * 1024
"""Over this size, or of unknown size; at the least rate of bodies others hold a slot for 6 s."""

VERY_LARGE_AT_ONCE: Final = 3


class LargeBodies:
    """Lets callers wait until a slot is free; a caller's own bodies come one after the other."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.very_large_slots = asyncio.Semaphore(VERY_LARGE_AT_ONCE)
        self.queues: dict[str, _Queue] = {}

    def slot(self, principal: str) -> "BodySlot":
        """Return the slot of one request; it is free again when its block ends."""
        return BodySlot(self, principal)


class BodySlot:
    """Taken by a body once it proves to be large; held until it is parsed."""

    def __init__(self, bodies: LargeBodies, principal: str) -> None:
        self._bodies = bodies
        self._principal = principal
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._held.aclose()

    async def take(self, *, very_large: bool = False) -> None:
        """Wait for the slot."""
        queues = self._bodies.queues
        slots = self._bodies.very_large_slots if very_large else self._bodies.slots
        own = queues.setdefault(self._principal, _Queue())
        own.members += 1
        self._held.callback(self._leave, own)
        await self._held.enter_async_context(own.lock)
        await self._held.enter_async_context(slots)

    def _leave(self, own: "_Queue") -> None:
        own.members -= 1
        if not own.members:
            del self._bodies.queues[self._principal]


class _Queue:
    """The bodies of one caller: those that wait and the one that is read."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0
