"""How late the event loop is: what everybody waits for where one task takes too long."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

EVERY_S: Final = 0.5


@asynccontextmanager
async def observed_lag(
    observe: Callable[[float], None], *, every_s: float = EVERY_S
) -> AsyncIterator[None]:
    """Measure while the block runs; ``observe`` is told the lag in seconds."""
    task = asyncio.create_task(_observe(observe, every_s))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _observe(observe: Callable[[float], None], every_s: float) -> None:
    while True:
        began = time.monotonic()
        await asyncio.sleep(every_s)
        observe(max(0.0, time.monotonic() - began - every_s))
