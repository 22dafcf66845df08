"""What a request shows of its caller, before anything of it is believed."""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request


@dataclass(frozen=True, slots=True)
class Presented:
    """What authentication may look at.

    Attributes:
        headers: Of the request, all of them.
        peer: The numeric address of the TCP peer; empty where it is not known.
        address: The caller's: the peer's, or what a trusted proxy says it is.
        is_encrypted: Whether this listener itself speaks TLS with the peer.
    """

    headers: Headers
    peer: str
    address: str
    is_encrypted: bool = False


def presented_by(request: Request) -> Presented:
    """Return what the request shows."""
    peer = request.client.host if request.client else ""
    return Presented(request.headers, peer, peer, request.url.scheme == "https")
