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
        is_encrypted: Whether this listener speaks TLS with the peer or, where that is a trusted
            proxy, the proxy says that the caller came to it by https.
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
    scope, headers = request.scope, request.headers
    client = scope.get("client")
    peer = client[0] if client else ""
    is_encrypted = scope.get("scheme") == "https"
    certificate = _certificate(request)
    if not proxies.networks:
        return Presented(headers, peer, peer, is_encrypted, False, certificate)
    noted = headers.getlist(proxies.header.value)
    address, is_proxy = proxies.caller_of(peer, noted), proxies.trust(peer)
    is_encrypted = is_encrypted or (is_proxy and proxies.received_tls(headers))
    return Presented(headers, peer, address, is_encrypted, is_proxy, certificate)


def _certificate(request: Request) -> bytes | None:
    """Return the certificate of the TLS connection. Source: ASGI's TLS extension."""
    chain = request.scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    return ssl.PEM_cert_to_DER_cert(chain[0]) if chain else None
