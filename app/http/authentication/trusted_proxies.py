"""Proxies whose word about their callers is taken."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from app.domain.addresses import canonical_ip
from app.http.authentication.forwarded import UNKNOWN, ForwardedHeader, hops, schemes

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """Who they are, and what they say.

    Attributes:
        networks: Their addresses.
        header: Where they note the address of their caller.
    """

    networks: Sequence[Network] = ()
    header: ForwardedHeader = ForwardedHeader.NONE

    def trust(self, peer: str) -> bool:
        """Tell whether the peer, a numeric address, is one of them."""
        canonical = canonical_ip(peer.partition("%")[0])
        if canonical is None:
            return False
        address = ipaddress.ip_address(canonical)
        return any(address in network for network in self.networks)

    def caller_of(self, peer: str, noted: Sequence[str]) -> str:
        """Return the caller's address: the last hop that is none of them.

        Everything before that hop is what the caller itself may have written. Where there are
        only proxies on the way, the first is the caller.

        Args:
            peer: Of the connection.
            noted: The lines of ``header`` in the request.

        Returns:
            ``UNKNOWN`` where that hop hides its address or cannot be read.
        """
        if self.header is ForwardedHeader.NONE or not noted or not self.trust(peer):
            return peer
        way = hops(self.header, noted)
        return way[self._caller_at(way)]

    def received_tls(self, headers: Headers) -> bool:
        """Tell whether a trusted proxy says that the caller came to it by https.

        Of ``Forwarded`` the element of the caller counts, of ``X-Forwarded-Proto`` every value.
        """
        if self.header is ForwardedHeader.NONE:
            return False
        noted = schemes(self.header, headers.getlist(self.header.scheme_field))
        if self.header is ForwardedHeader.FORWARDED:
            way = hops(self.header, headers.getlist(self.header.value))
            return noted[self._caller_at(way)] == "https"
        return set(noted) == {"https"}

    def _caller_at(self, way: Sequence[str]) -> int:
        """Return where in a list of hops the caller stands."""
        positions = reversed(range(len(way)))
        outside = (at for at in positions if way[at] == UNKNOWN or not self.trust(way[at]))
        return next(outside, 0)


NO_PROXIES = TrustedProxies()
