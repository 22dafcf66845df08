"""Work that would hold up every other request leaves the event loop."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

MANY: Final = 200
"""From so many items on; fewer take a millisecond or two, no more than the way to a thread."""

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(number: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do pure work, in a thread where it is about many items.

    Args:
        number: Of items that the work grows with.
        work: What to do; it touches nothing that others change.
        args: For the work.
        kwargs: For the work.
    """
    if number < MANY:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
