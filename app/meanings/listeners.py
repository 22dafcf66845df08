"""Where this process listens."""

import errno
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from app.meanings.certificates import tls_context
from app.settings import Settings, SettingsError

_NOT_OURS: Final = (errno.EADDRINUSE, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Listener:
    """A port.

    Attributes:
        setting: The variable that names it.
        host: The address, or a name that has several.
        port: 0 for any that is free.
        tls: Speaks TLS there; null is plain HTTP.
    """

    setting: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None

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

    def bind(self) -> list[socket.socket]:
        """Return a socket for each address of the host, bound and not listening yet.

        With port 0 each has a port of its own.

        Raises:
            OSError: One of them cannot be had.
        """
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        found = socket.getaddrinfo(self.host, self.port, type=kind, flags=flags)
        bound = []
        for family, _, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.setblocking(False)
            bound.append(one)
        return bound


def listeners(settings: Settings) -> list[Listener]:
    """Return the ports; with TLS one is plain HTTP only where TLS has a port of its own.

    Raises:
        SettingsError: As ``tls_context``.
    """
    tls, host = tls_context(settings), settings.host
    if tls is None or settings.tls_port is None:
        return [Listener("QUOTAS_PORT", host, settings.port, tls)]
    return [
        Listener("QUOTAS_PORT", host, settings.port),
        Listener("QUOTAS_TLS_PORT", host, settings.tls_port, tls),
    ]
