"""Servers for tests that live in the test's event loop, or in a thread with a loop of their own.

A service in a process of its own needs the latter: the test itself may block.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Concatenate, ParamSpec, TypeVar

from anyio.from_thread import start_blocking_portal

from tests.testkit.patience import DEADLINE_S, pauses

P = ParamSpec("P")
T = TypeVar("T")


class OwnLoop:
    """A base of what runs in the event loop in which it was made."""

    def __init__(self) -> None:
        self.own_loop = asyncio.get_running_loop()
        self.own_thread = threading.get_ident()


S = TypeVar("S", bound=OwnLoop)


def any_thread(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let a method be called from any thread; it runs in the loop's own."""

    @functools.wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if threading.get_ident() == self.own_thread:
            return method(self, *args, **kwargs)

        async def run() -> T:
            return method(self, *args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), self.own_loop).result(DEADLINE_S)

    return called


@contextmanager
def in_a_thread(opening: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Open something in an event loop of its own thread, and close it there."""
    with start_blocking_portal() as own, own.wrap_async_context_manager(opening()) as thing:
        yield thing


async def until(is_true: Callable[[], object]) -> None:
    """Let the tasks of this event loop go on until it is true, for 30 s at most."""
    pause = pauses(0.01)
    async with asyncio.timeout(DEADLINE_S):
        while not is_true():
            await asyncio.sleep(next(pause))


async def until_quiet() -> None:
    """Let the tasks of this event loop go as far as they do without waiting."""
    for _ in range(20):
        await asyncio.sleep(0)


class Silent:
    """A base of handlers that print nothing."""

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def served(
    handler: Callable[..., BaseHTTPRequestHandler], tls: SSLContext | None = None
) -> Iterator[str]:
    """Answer on a free port of this machine until the block ends; return the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
