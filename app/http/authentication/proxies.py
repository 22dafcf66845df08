"""Proxies that are trusted, and where a request came from as they noted it.

Both headers list the hops from the first to the last; every proxy appends the address that it saw.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from starlette.datastructures import Headers

from app.domain.addresses import canonical_ip

UNKNOWN: Final = ""
"""A hop that hides its address, or whose entry cannot be read."""

_PORT: Final = r"(?::[A-Za-z0-9._-]{1,64})?"
_BRACKETED: Final = re.compile(rf"\[([0-9A-Fa-f:.]+)\]{_PORT}")
_DOTTED: Final = re.compile(rf"([0-9.]+){_PORT}")
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_PAIR: Final = re.compile(rf"""\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=({_QUOTED}|[^\s",;=]+)\s*""")
_ESCAPE: Final = re.compile(r"\\(.)")


class ForwardedHeader(StrEnum):
    """The header in which a proxy notes its caller's address."""

    NONE = "none"
    FORWARDED = "forwarded"
    X_FORWARDED_FOR = "x-forwarded-for"

    @property
    def scheme_field(self) -> str:
        """The header in which the same proxy notes ``http`` or ``https``."""
        return "x-forwarded-proto" if self is ForwardedHeader.X_FORWARDED_FOR else self.value


def hops(header: ForwardedHeader, values: Sequence[str]) -> list[str]:
    """Return the canonical addresses of the hops, first to last, ``UNKNOWN`` among them.

    Args:
        header: Which of the two it is.
        values: Its field lines, in order; they are one list. Source: RFC 9110 5.2.
    """
    joined = ",".join(values)
    if header is ForwardedHeader.FORWARDED:
        return [_address(_member(element, "for")) for element in split_outside_quotes(joined, ",")]
    return [_address(element.strip()) for element in joined.split(",")]


def schemes(header: ForwardedHeader, values: Sequence[str]) -> list[str]:
    """Return the schemes in lower case; ``Forwarded`` has one for each hop, or ``UNKNOWN``."""
    joined = ",".join(values)
    if header is ForwardedHeader.FORWARDED:
        elements = split_outside_quotes(joined, ",")
        return [_member(element, "proto").lower() for element in elements]
    return [scheme.strip().lower() for scheme in joined.split(",")]


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split at commas or semicolons that are in no quoted string; all of the text remains.

    A quote that is never closed belongs to the rest of the text.
    """
    members, begin, quoted, escaped = [], 0, False, False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == separator and not quoted:
            members.append(text[begin:at])
            begin = at + 1
    return [*members, text[begin:]]


def _member(element: str, name: str) -> str:
    """Return a member of an element of ``Forwarded``. Source: RFC 7239 4, 6."""
    values = []
    for text in split_outside_quotes(element, ";"):
        pair = _PAIR.fullmatch(text)
        if pair is None:
            return UNKNOWN
        if pair[1].lower() == name:
            values.append(pair[2])
    if len(values) != 1:
        return UNKNOWN
    value = values[0]
    return _ESCAPE.sub(r"\1", value[1:-1]) if value.startswith('"') else value


def _address(text: str) -> str:
    """Return an address, with or without brackets and port, in its canonical form."""
    found = _BRACKETED.fullmatch(text) or _DOTTED.fullmatch(text)
    return canonical_ip(found[1] if found else text) or UNKNOWN


def is_this_machine(host: str) -> bool:
    """Tell whether a host is a loopback address or ``localhost``; no name is looked up."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """Who they are, and what they say."""

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
        only proxies in between, the first is the caller.

        Returns:
            ``UNKNOWN`` where that hop hides its address or cannot be read.
        """
        if self.header is ForwardedHeader.NONE or not noted or not self.trust(peer):
            return peer
        addresses = hops(self.header, noted)
        return addresses[self._caller_at(addresses)]

    def received_tls(self, headers: Headers) -> bool:
        """Tell whether a trusted proxy says that the caller came to it by https.

        Of ``Forwarded`` the element of the caller counts, of ``X-Forwarded-Proto`` every value.
        """
        if self.header is ForwardedHeader.NONE:
            return False
        noted = schemes(self.header, headers.getlist(self.header.scheme_field))
        if self.header is ForwardedHeader.FORWARDED:
            addresses = hops(self.header, headers.getlist(self.header.value))
            return noted[self._caller_at(addresses)] == "https"
        return set(noted) == {"https"}

    def _caller_at(self, addresses: Sequence[str]) -> int:
        positions = reversed(range(len(addresses)))
        outside = (
            at for at in positions if addresses[at] == UNKNOWN or not self.trust(addresses[at])
        )
        return next(outside, 0)


NO_PROXIES = TrustedProxies()
