"""One server process: where it listens, one event loop, a clean end."""

import asyncio
import errno
import gc
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final, cast

import structlog
import uvicorn
from starlette.types import ASGIApp

from app.authenticators import tls_context
from app.http.application import create_asgi
from app.http.connections import Acceptor, ConnectionLimits, Connections, raise_fd_limit
from app.http.middleware import ON_OPERATIONS_PORT
from app.http.receiving import DeadlineHttpProtocol, ReceiveLimits
from app.settings import Settings, SettingsError
from app.wiring import Wiring

_OPERATIONS_PORT: Final = "QUOTAS_OPERATIONS_PORT"
_NOT_OURS: Final = (errno.EADDRINUSE, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Listener:
    """A port.

    Attributes:
        setting: The variable that names it.
        host: The address, or a name that has several.
        port: 0 for any that is free.
        tls: Speaks TLS there; null is plain HTTP.
        is_for_operations: Whether probes and metrics are served there, and nothing else.
    """

    setting: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    is_for_operations: bool = False

    def refuse_unless_free(self) -> None:
        """Refuse an address that is unknown or taken, before anything is opened."""
        try:
            for trial in self.bind():
                trial.close()
        except socket.gaierror as error:
            message = f"QUOTAS_HOST: {self.host!r} cannot be listened on: {error.strerror}."
            raise SettingsError(message) from None
        except OSError as error:
            if error.errno in _NOT_OURS:
                where = f"{self.setting}: {self.host}:{self.port}"
                message = f"{where} cannot be listened on: {error.strerror}."
                raise SettingsError(message) from None

    def bind(self) -> Iterator[socket.socket]:
        """Yield a socket for each address of the host, bound and not listening.

        With port 0 each has a port of its own.
        """
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        found = socket.getaddrinfo(self.host, self.port, type=kind, flags=flags)
        for family, _, _, _, address in dict.fromkeys(found):
            yield _bind(family, address)


def _bind(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def read_listeners(settings: Settings) -> list[Listener]:
    """Return the ports; with TLS one is plain HTTP only where TLS has a port of its own."""
    tls = tls_context(settings)
    found = []
    for name, port in settings.ports.items():
        is_plain = name == _OPERATIONS_PORT or (
            name == "QUOTAS_PORT" and settings.has_plain_listener
        )
        context = None if is_plain else tls
        found.append(Listener(name, settings.host, port, context, name == _OPERATIONS_PORT))
    return found


_BACKLOG: Final = 2048
_OPERATIONS: Final = ConnectionLimits(100, 100)
"""For probes and scrapes, which the connections of callers do not use up."""

logger = structlog.get_logger(__name__)

_GC_THRESHOLDS = (10_000, 20, 50)
"""A request of 1,000 entities makes some 100,000 objects, and hardly one of them is in a cycle."""

_THREAD_SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread keeps the interpreter while another waits for it, in seconds.

The event loop gives it away at each event, and waits that long to have it back while a thread reads
the image or a large request: ten times as long is Python's default.
"""


Bound = tuple[Listener, socket.socket]


class Server(uvicorn.Server):
    """Announces its stop before it stops, so that nobody sends it new work."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        wiring: Wiring,
        delay_s: float,
        listeners: Sequence[Listener],
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._wiring = wiring
        self._delay_s = delay_s
        self._listeners = listeners
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; what exists then stays, so no garbage collection looks at it again."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        await super().startup(sockets if sockets is not None else [])
        try:
            bound = [each for listener in self._listeners for each in self._listen(listener)]
        except OSError as error:
            logger.error("this cannot be listened on: %s", error.strerror)  # noqa: TRY400
            self.started, self.should_exit = False, True
            await self.lifespan.shutdown()
        else:
            for listener, listening in bound:
                scheme = "https" if listener.tls else "http"
                logger.info("listening", url=_url(scheme, listening))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        sys.setswitchinterval(_THREAD_SWITCH_INTERVAL_S)

    def _listen(self, listener: Listener) -> Sequence[Bound]:
        """Listen; uvicorn itself does so on one port, and counts no connection before TLS."""
        connections, state = self._connections, self.lifespan.state
        if listener.is_for_operations:
            connections, state = Connections(_OPERATIONS), {**state, ON_OPERATIONS_PORT: True}
        make = partial(
            DeadlineHttpProtocol,
            self.config,
            self.server_state,
            state,
            metrics=self._wiring.metrics,
            limits=ReceiveLimits(),
        )
        own = list(listener.bind())
        for listening in own:
            acceptor = Acceptor(listening, connections, make, listener.tls, _BACKLOG)
            self.servers.append(cast("asyncio.Server", acceptor))
        return [(listener, listening) for listening in own]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; streams end first, for nobody waits for their end."""
        self._wiring.end_streams()
        await super().shutdown(sockets)

    def handle_exit(self, _signal: int, _frame: FrameType | None) -> None:
        """Turn ``/readyz`` off, then stop; a repeated signal changes nothing.

        The signal is not raised again at the end, so a clean stop ends with exit code 0.
        """
        if not self._wiring.begin_drain():
            return
        if self._delay_s and self.started and self._loop is not None:
            self._loop.call_soon_threadsafe(
                self._loop.call_later, self._delay_s, self._begin_to_stop
            )
        else:
            self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        self.should_exit = True

    def _reload(self) -> None:
        self._reloading = asyncio.create_task(self._wiring.reload())


def _url(scheme: str, listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Args:
        settings: As ``load_settings`` has checked them.
    """
    served = settings.kafka_bootstrap_servers or str(settings.clusters_file)
    logger.info("starting", brokers=served)
    server = _server(settings, Wiring(settings), read_listeners(settings))
    server.run()
    return 0 if server.started else 1


def _server(settings: Settings, wiring: Wiring, listeners: Sequence[Listener]) -> Server:
    limits = ConnectionLimits(
        raise_fd_limit(settings.max_connections, _OPERATIONS.all),
        settings.max_connections_per_address,
        settings.max_handshakes,
        wiring.proxies.trust,
    )
    connections = Connections(limits, wiring.metrics.count_dropped)
    has_operations_port = settings.operations_port is not None
    app = create_asgi(
        wiring.serving,
        wiring.metrics,
        has_operations_port=has_operations_port,
        cors_origins=settings.cors_origins,
    )
    grace_s = int(settings.shutdown_grace_s) or 1
    config = _config(app, grace_s)
    return Server(config, connections, wiring, settings.stop_delay_s, listeners)


def _config(app: ASGIApp, grace_s: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",
        loop="uvloop",
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=grace_s,
    )
