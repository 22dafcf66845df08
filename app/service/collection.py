"""Building many objects without looking for cycles among them.

To look through the objects of 100,000 entities takes the collector some 50 ms, in which nothing
else runs.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

LASTING: Final = 200_000
"""A block that leaves so many objects behind has built something that lasts."""

_collecting: Final = Lock()
_paused = 0


@contextmanager
def without_collection() -> Iterator[None]:
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
