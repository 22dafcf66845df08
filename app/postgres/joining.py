"""Joins with tables that are empty most of the time, and whose statistics say so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.postgres.copying import MANY
from app.postgres.leases import Lease

_BY_HASH: Final = (
    "select set_config('enable_hashjoin', 'on', true), set_config('enable_nestloop', 'off', true)"
)
_AS_BEFORE: Final = (
    "select set_config('enable_hashjoin', 'off', true), set_config('enable_nestloop', 'on', true)"
)


@asynccontextmanager
async def joined_by_hash(number: int, lease: Lease) -> AsyncIterator[None]:
    """Let the block's statements join so many rows with a table by hash, if they are many.

    Slots come and go with each alteration. Where the planner believes that there is none, it
    compares each with each: 10,000 took 10 s, and take 0.1 s by hash.
    """
    if number < MANY:
        yield
        return
    await lease.driver.execute(_BY_HASH)
    yield
    await lease.driver.execute(_AS_BEFORE)
