"""A port that nobody listens on."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from app.localdev.ports import HOST


@contextmanager
def closed_port() -> Iterator[int]:
    """Keep a port for the block: connections to it are refused, and nobody else can take it."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield taken.getsockname()[1]
