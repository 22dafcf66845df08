"""What a request shows of its caller, before anything of it is believed."""

import ssl
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request

from app.http.authentication.trusted_proxies import TrustedProxies


@dataclass(frozen=True, slots=True)
class Presented:
    """What authentication may look at.

    Attributes:
        headers: Of the request, all of them.
        peer: The numeric address of the TCP peer; empty where it is not known.
        address: The caller's: the peer's, or what a trusted proxy says it is; empty where it is
            not known.
        is_encrypted: Whether this listener itself speaks TLS with the peer.
        is_from_proxy: Whether the peer is a trusted proxy.
        certificate: In DER; the peer owns it, and it is of an accepted authority.
    """

    headers: Headers
    peer: str
    address: str
    is_encrypted: bool = False
    is_from_proxy: bool = False
    certificate: bytes | None = None


def presented_by(request: Request, proxies: TrustedProxies) -> Presented:
    """Return what the request shows."""
    peer = request.client.host if request.client else ""
    noted = request.headers.getlist(proxies.header.value)
    return Presented(
        request.headers,
        peer,
        proxies.caller_of(peer, noted),
        request.url.scheme == "https",
        proxies.trust(peer),
        _certificate(request),
    )


def _certificate(request: Request) -> bytes | None:
    """Return the certificate of the TLS connection. Source: ASGI's TLS extension."""
    chain = request.scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    return ssl.PEM_cert_to_DER_cert(chain[0]) if chain else None
