"""Building many objects without looking for cycles among them."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

_collecting: Final = Lock()
_paused = 0


@contextmanager
def without_collection() -> Iterator[None]:
    """Build many objects, none of them in a cycle, without looking for cycles among them.

    The collector is the process's: it looks again when the last block of all threads has ended.
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
                gc.enable()
