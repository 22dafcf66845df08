"""One server process: one event loop, a clean end."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from app.http.application import create_asgi
from app.http.open_files import room_for_connections
from app.http.receive_limits import ReceiveLimits
from app.http.receiving import ReceivingProtocol, receiving_protocol
from app.http.workers.private_app import PrivateApp
from app.http.workers.team import Team
from app.listeners import Listener, own_socket
from app.logs import request_log
from app.settings import Settings
from app.wiring import Wiring

_BACKLOG: Final = 2048
_HANDSHAKE_S: Final = 10.0
_HANDED_BYTES: Final = 128 * 1024
"""Of headers: those of the caller, and what a worker adds to them."""

_MOST_HANDED: Final = 1_000_000
"""Connections of other workers are never refused: they are as many as requests handed on."""


logger = structlog.get_logger(__name__)

_COLLECT_AFTER = (10_000, 20, 50)
"""A request of 1,000 entities makes some 100,000 objects, and hardly one of them is in a cycle."""

_SWITCH_S: Final = 0.0005
"""How long a thread keeps the interpreter while another waits for it, in seconds.

The event loop gives it away at each event, and waits that long to have it back while a thread reads
the image or a large request: ten times as long is Python's default.
"""


@dataclass(frozen=True, slots=True)
class Port:
    """Where connections come from.

    Attributes:
        listener: The address, and whether TLS is spoken.
        reserved: Sockets that the parent of workers has bound to it; none without a parent.
    """

    listener: Listener
    reserved: Sequence[socket.socket] = ()


@dataclass(frozen=True, slots=True)
class PrivateDoor:
    """Where the other workers of this service come in.

    Attributes:
        team: Knows the path of this one's Unix socket.
        config: With the application that answers them.
        connections: The class of their connections.
    """

    team: Team
    config: uvicorn.Config
    connections: type[ReceivingProtocol]


class Server(uvicorn.Server):
    """Says that it is going before it goes, so that nobody sends it new work.

    Args:
        config: With the application.
        connections: The class of connections.
        wiring: Is told of the stop.
        delay_s: How long the stop is announced, in seconds.
        ports: Where it listens.

    Attributes:
        serves: Called once it listens.
        door: Null without other workers.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        connections: type[ReceivingProtocol],
        wiring: Wiring,
        delay_s: float,
        ports: Sequence[Port],
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._wiring = wiring
        self._delay_s = delay_s
        self._ports = ports
        self._loop: asyncio.AbstractEventLoop | None = None
        self.serves: Callable[[], None] = lambda: None
        self.door: PrivateDoor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; what is there then lives on, so no garbage collection looks at it again."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        await super().startup(sockets if sockets is not None else [])
        try:
            await self._listen_to_all()
        except OSError as error:
            logger.error("this cannot be listened on: %s", error.strerror)  # noqa: TRY400
            self.started, self.should_exit = False, True
            await self.lifespan.shutdown()
        else:
            self.serves()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
        sys.setswitchinterval(_SWITCH_S)

    async def _listen_to_all(self) -> None:
        if self.door is not None:
            self.servers.append(await self._open(self.door))
        for port in self._ports:
            own = [own_socket(one) for one in port.reserved]
            for one in own or (None,):
                self.servers.append(await self._listen(port.listener, one))

    async def _open(self, door: PrivateDoor) -> asyncio.Server:
        door.config.load()
        make = self._making(door.connections, door.config)
        path = door.team.socket_of(door.team.mine)
        return await asyncio.get_running_loop().create_unix_server(make, str(path))

    def _making(
        self, connections: type[ReceivingProtocol], config: uvicorn.Config
    ) -> Callable[[], asyncio.Protocol]:
        return lambda: connections(config, self.server_state, self.lifespan.state)

    async def _listen(self, port: Listener, own: socket.socket | None) -> asyncio.Server:
        """Listen; uvicorn itself does so on one port, and waits a minute for a TLS handshake."""
        server = await asyncio.get_running_loop().create_server(
            self._making(self._connections, self.config),
            **({"host": port.host, "port": port.port} if own is None else {"sock": own}),
            ssl=port.tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if port.tls is None else _HANDSHAKE_S,
        )
        scheme = "http" if port.tls is None else "https"
        for one in server.sockets:
            logger.info("listening", url=_url(scheme, one))
        return server

    def handle_exit(self, _signal: int, _frame: FrameType | None) -> None:
        """Turn ``/readyz`` off, then stop; a repeated signal hastens nothing.

        The signal is not raised again at the end, so a clean stop ends with exit code 0.
        """
        if not self._wiring.announce_stop():
            return
        if self._delay_s and self.started and self._loop is not None:
            self._loop.call_soon_threadsafe(
                self._loop.call_later, self._delay_s, self._begin_to_stop
            )
        else:
            self._begin_to_stop()

    def parent_has_ended(self) -> None:
        """Stop without delay, from any thread: nobody will start this service's workers again."""
        if self._loop is None or not self.started:
            os._exit(1)
        self._loop.call_soon_threadsafe(self._orphaned)

    def _orphaned(self) -> None:
        logger.error("the parent of this worker has ended, so it stops")
        self._wiring.announce_stop()
        self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        self.should_exit = True

    def _reload(self) -> None:
        self._reloading = asyncio.create_task(self._wiring.reload())


def _url(scheme: str, listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def build_server(
    settings: Settings, wiring: Wiring, ports: Sequence[Port], team: Team | None = None
) -> Server:
    """Return the server of this process, or of each worker of a team; it listens nowhere yet."""
    room = room_for_connections(settings.max_connections)
    limits = ReceiveLimits(connections=room)
    board = None if team is None else team.board
    connections = receiving_protocol(limits, wiring.metrics, board)
    log = request_log(settings.log_format, settings.log_level)
    app = create_asgi(wiring.services, wiring.metrics, log)
    grace_s = int(settings.shutdown_grace_s) or 1
    if team is None:
        config = _config(app, connections, grace_s)
        return Server(config, connections, wiring, settings.stop_delay_s, ports)
    config = _config(app, connections, grace_s)
    server = Server(config, connections, wiring, settings.stop_delay_s, ports)
    handed = receiving_protocol(
        replace(limits, header_bytes=_HANDED_BYTES, connections=_MOST_HANDED), wiring.metrics
    )
    private = _config(PrivateApp(app, wiring.counted), handed, grace_s)
    server.door = PrivateDoor(team, private, handed)
    return server


def _config(app: ASGIApp, connections: type[ReceivingProtocol], grace_s: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http=connections,
        ws="none",
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=grace_s,
    )
