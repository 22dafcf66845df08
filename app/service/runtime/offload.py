"""Work that would block every other request leaves the event loop, or pauses the collector."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, ParamSpec, TypeVar

from app.domain.errors import Retry, TooManyRequestsError
from app.domain.validation import MAX_CHANGES

P = ParamSpec("P")
T = TypeVar("T")

MANY: Final = 200
"""From so many items on; fewer take a millisecond or two, no more than a thread costs."""


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


class LargeRequests:
    """Lets a principal have as many items in progress as one request may have.

    Requests of fewer than ``MANY`` pass uncounted, and so does one that has no other beside it.
    """

    def __init__(self) -> None:
        self._items: dict[str, int] = {}

    @contextmanager
    def work(self, principal: str, number: int) -> Iterator[None]:
        """Count the items of a large request until the block ends.

        Raises:
            TooManyRequestsError: The principal has enough in progress.
        """
        if number < MANY:
            yield
            return
        others = self._items.get(principal, 0)
        if others and others + number > MAX_CHANGES:
            detail = f"{principal} has {others} entities in progress; at most {MAX_CHANGES}."
            raise TooManyRequestsError(
                detail, code="rate-limited", retry=Retry.SAFE, retry_after_s=1
            )
        self._items[principal] = others + number
        try:
            yield
        finally:
            self._items[principal] -= number
            if not self._items[principal]:
                del self._items[principal]


LASTING: Final = 200_000
"""A block that leaves so many objects behind has built something that lasts."""

_collecting: Final = Lock()
_paused = 0


@contextmanager
def pause_gc() -> Iterator[None]:
    """Build many objects, none of them in a cycle, without looking for cycles among them.

    The collector is the process's: it looks again when the last block of all threads has ended, but
    not at what lasts. That is freed like everything else when nobody refers to it any more.
    """
    global _paused  # noqa: PLW0603 - the collector is the process's
    with _collecting:
        _paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            _paused -= 1
            if not _paused:
                if gc.get_count()[0] >= LASTING:
                    gc.freeze()
                gc.enable()
