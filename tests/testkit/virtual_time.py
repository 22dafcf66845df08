"""Virtual time: an event loop whose clock jumps to the next timer when nothing else can run.

For tests of deadlines that meet no socket: they wait for as long as the product does, in no time.
"""

import asyncio
import functools
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec
from unittest import mock

P = ParamSpec("P")


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Asks the loop before it waits for longer than nothing."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if self.loop.threads:  # they take real time, and none of the loop's
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.loop.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Nothing takes time but its timers.

    Attributes:
        now: Its time, in seconds.
        threads: How many calls in threads it waits for.
    """

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = time.monotonic()
        self.threads = 0
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, *arguments: Any) -> Any:
        self.threads += 1
        future = super().run_in_executor(*arguments)
        future.add_done_callback(self._thread_has_ended)
        return future

    async def shutdown_default_executor(self, *arguments: Any) -> None:
        self.threads += 1
        await super().shutdown_default_executor(*arguments)

    def _thread_has_ended(self, _: object) -> None:
        self.threads -= 1


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in a loop of virtual time; ``time.monotonic`` tells it as well."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        real, own = time.monotonic, threading.get_ident()
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            loop = runner.get_loop()

            def monotonic() -> float:
                return loop.time() if threading.get_ident() == own else real()

            with mock.patch("time.monotonic", monotonic):
                runner.run(test(*arguments, **named))

    return run


class ManualClock:
    """A clock that stands still until a test sets ``now``, in seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
