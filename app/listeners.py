"""Where this process listens."""

import errno
import socket
import ssl
import sys
from dataclasses import dataclass
from typing import Any, Final

from app.authenticators import tls_context
from app.settings import Settings, SettingsError

_OPERATIONS: Final = "QUOTAS_OPERATIONS_PORT"
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
        """Refuse an address that is unknown or taken, before anything is opened.

        Raises:
            SettingsError: It is.
        """
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        try:
            found = socket.getaddrinfo(self.host, self.port, type=kind, flags=flags)
        except OSError as error:
            message = f"QUOTAS_HOST: {self.host!r} cannot be listened on: {error.strerror}."
            raise SettingsError(message) from None
        for family, _, protocol, _, address in found:
            try:
                with socket.socket(family, kind, protocol) as trial:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trial.bind(address)
            except OSError as error:
                if error.errno in _NOT_OURS:
                    where = f"{self.setting}: {self.host}:{self.port}"
                    message = f"{where} cannot be listened on: {error.strerror}."
                    raise SettingsError(message) from None

    def bind(self, *, shared: bool = True) -> list[socket.socket]:
        """Return a socket for each address of the host, bound and not listening.

        With port 0 each has a port of its own.

        Args:
            shared: Whether workers bind sockets of their own to the same address.

        Raises:
            OSError: One of them cannot be had.
        """
        flags = socket.AI_PASSIVE
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=flags)
        return [
            _bound(family, address, shared=shared)
            for family, _, _, _, address in dict.fromkeys(found)
        ]


def own_socket(reserved: socket.socket) -> socket.socket:
    """Return a worker's own socket on an address that its parent has bound.

    Linux deals connections out to those that listen on it, and to none that has ended; elsewhere
    all accept from the parent's. Source: socket(7), ``SO_REUSEPORT``.

    Raises:
        OSError: It cannot be had.
    """
    if sys.platform != "linux":
        return reserved
    return _bound(reserved.family, reserved.getsockname(), shared=True)


def _bound(family: int, address: Any, *, shared: bool) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared and sys.platform == "linux":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        one.bind(address)
    except OSError:
        one.close()
        raise
    one.setblocking(False)
    return one


def listeners(settings: Settings) -> list[Listener]:
    """Return the ports; with TLS one is plain HTTP only where TLS has a port of its own.

    Raises:
        SettingsError: As ``tls_context``.
    """
    tls = tls_context(settings)
    found = []
    for name, port in settings.ports.items():
        is_plain = name == _OPERATIONS or (name == "QUOTAS_PORT" and settings.has_plain_listener)
        context = None if is_plain else tls
        found.append(Listener(name, settings.host, port, context, name == _OPERATIONS))
    return found
