"""Free TCP ports of this machine that stay free while a server restarts."""

import random
import socket
from pathlib import Path

from app.localdev.errors import LocalDevError

HOST = "127.0.0.1"

STARTS = 3
"""How often a server is started whose port another program took between probe and start."""

_LOWEST = 15000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 500


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return distinct free ports below those that the system gives to outgoing connections.

    A port from that range could be taken, even by a client that is waiting for the very server,
    while the server restarts.
    """
    found: set[int] = set()
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, _first_ephemeral())  # noqa: S311 - no secret
        if port not in found and is_free(port):
            found.add(port)
        if len(found) == count:
            return list(found)
    raise LocalDevError("No free TCP ports were found: stop some servers of this machine.")


def _first_ephemeral() -> int:
    lowest = int(_RANGE_FILE.read_text().split()[0]) if _RANGE_FILE.exists() else 32768
    return lowest if lowest > _LOWEST + 1000 else 65536
