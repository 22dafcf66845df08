"""Signals that end the program, deferred where they would leave something behind."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
_PY4J_MESSAGE: Final = "KeyboardInterrupt while sending command."

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM wait until the block ends; the second does not wait.

    Only the main thread gets signals; a signal that is ignored stays so.
    """
    arrived: list[int] = []
    handlers = _handlers()

    def defer(number: int, frame: FrameType | None) -> None:
        if arrived:
            handlers[number](number, frame)
        arrived.append(number)

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived[:1]:
            handlers[number](number, None)


@contextmanager
def unlogged_interrupts() -> Iterator[None]:
    """Keep Py4J from logging a stack where Ctrl-C ends a call to the JVM."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.msg != _PY4J_MESSAGE

    root = logging.getLogger()
    root.addFilter(is_wanted)
    try:
        yield
    finally:
        root.removeFilter(is_wanted)


def _handlers() -> Mapping[int, Handler]:
    """Return the signals' handlers that are Python functions."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {int(number): signal.getsignal(number) for number in _ENDING}
    return {number: handler for number, handler in handlers.items() if callable(handler)}
