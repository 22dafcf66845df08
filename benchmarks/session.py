"""The connections of a run, warm from the first call to the last."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks.http_connection import HttpConnection, open_http
from benchmarks.stack import Stack
from benchmarks.wire import WireQuotas


@dataclass(frozen=True)
class Session:
    """One connection to each: the broker, the service, the no-op server."""

    stack: Stack
    wire: WireQuotas
    service: HttpConnection
    noop: HttpConnection


@asynccontextmanager
async def opened(stack: Stack) -> AsyncIterator[Session]:
    """Open the connections; close them when the block ends."""
    wire = await WireQuotas.open(stack.bootstrap_servers)
    service, noop = await open_http(stack.service_port), await open_http(stack.noop_port)
    try:
        yield Session(stack, wire, service, noop)
    finally:
        wire.close()
        service.close()
        noop.close()
