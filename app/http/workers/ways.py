"""The way from one worker to another."""

import ssl
from pathlib import Path
from typing import Final

import httpx

_UNUSED: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""A Unix socket needs no TLS, and httpx would read the system's authorities for each way."""


def way_to(path: Path) -> httpx.AsyncHTTPTransport:
    """Return what sends requests to the worker that listens there."""
    return httpx.AsyncHTTPTransport(uds=str(path), verify=_UNUSED)
