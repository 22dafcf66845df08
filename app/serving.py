"""The server: one process, one event loop, a clean end."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Any

import uvicorn

from app.http.application import create_application, create_asgi
from app.http.open_files import room_for_connections
from app.http.receive_limits import ReceiveLimits
from app.http.receiving import ReceivingProtocol, receiving_protocol
from app.http.services import Services
from app.logs import configure_logs
from app.meanings.listeners import Listener, listeners
from app.meanings.surroundings import check_surroundings
from app.settings import Settings
from app.wiring import Wiring

_BACKLOG = 2048
_HANDSHAKE_S = 10.0

logger = logging.getLogger(__name__)

_COLLECT_AFTER = (10_000, 20, 50)
"""A request of 1,000 entities makes some 100,000 objects, and hardly one of them is in a cycle."""


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Raises:
        SettingsError: A setting cannot be used.
    """
    configure_logs(settings.log_format, settings.log_level)
    wiring = Wiring(settings)
    ports = listeners(settings)
    for port in ports:
        port.refuse_unless_free()
    asyncio.run(check_surroundings(settings))
    limits = ReceiveLimits(connections=room_for_connections(settings.max_connections))
    connections = receiving_protocol(limits, wiring.metrics)
    config = uvicorn.Config(
        create_asgi(wiring.services, wiring.metrics),
        log_config=None,
        access_log=False,
        http=connections,
        ws="none",
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=int(settings.shutdown_grace_s) or 1,
    )
    server = _Server(config, connections, wiring, settings.stop_delay_s, ports)
    server.run()
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Says that it is going before it goes, so that nobody sends it new work."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: type[ReceivingProtocol],
        wiring: Wiring,
        delay_s: float,
        ports: Sequence[Listener],
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._wiring = wiring
        self._delay_s = delay_s
        self._ports = ports

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; what is there then lives on, so no garbage collection looks at it again."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        await super().startup(sockets if sockets is not None else [])
        try:
            for port in self._ports:
                self.servers.append(await self._listen(port))
        except OSError as error:
            logger.error("this cannot be listened on: %s", error.strerror)  # noqa: TRY400
            self.started, self.should_exit = False, True
            await self.lifespan.shutdown()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)

    async def _listen(self, port: Listener) -> asyncio.Server:
        """Listen; uvicorn itself does so on one port, and waits a minute for a TLS handshake."""

        def connection() -> asyncio.Protocol:
            return self._connections(self.config, self.server_state, self.lifespan.state)

        server = await asyncio.get_running_loop().create_server(
            connection,
            host=port.host,
            port=port.port,
            ssl=port.tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if port.tls is None else _HANDSHAKE_S,
        )
        scheme = "http" if port.tls is None else "https"
        for one in server.sockets:
            logger.info("listening for %s on port %d", scheme, one.getsockname()[1])
        return server

    def handle_exit(self, _signal: int, _frame: FrameType | None) -> None:
        """Turn ``/readyz`` off, then stop; a repeated signal hastens nothing.

        The signal is not raised again at the end, so a clean stop ends with exit code 0.
        """
        if not self._wiring.announce_stop():
            return
        if self._delay_s and self.started:
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, self._delay_s, self._begin_to_stop)
        else:
            self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        self.should_exit = True

    def _reload(self) -> None:
        self._reloading = asyncio.create_task(self._wiring.reload())


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document; needs no settings and connects to nothing."""
    return create_application(_Unopened).openapi()


class _Unopened(AbstractAsyncContextManager[Services]):
    """Stands in for the services of an application that only describes itself."""

    async def __aenter__(self) -> Services:
        message = "this application only describes itself"
        raise RuntimeError(message)
