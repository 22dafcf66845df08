"""A server whose limits each test chooses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from app.http.receive_limits import ReceiveLimits
from tests.unit.http.raw_server import RawServer, raw_server
from tests.unit.http.receiving.requests import Serve


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Return a function that serves with these limits until the test ends."""
    servers: list[RawServer] = []
    with ExitStack() as stack:

        def begin(limits: ReceiveLimits) -> RawServer:
            server = stack.enter_context(raw_server(limits))
            servers.append(server)
            return server

        yield begin
        for server in servers:
            await server.hang_up()
        await asyncio.to_thread(stack.close)
