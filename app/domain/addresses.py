"""Addresses: the text that Kafka compares, the text that we store, the address that is enforced.

A broker keeps the name of an ``ip`` entity as it was written and compares addresses, not texts; an
ACL's host it compares as text. So one address has three readings here.
"""

import ipaddress
import re
from typing import Final

_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_JAVA_IPV4: Final = re.compile(r"[0-9]+(?:\.[0-9]+){0,3}")
_JAVA_IPV4_MAX_LENGTH: Final = 15
_EMBEDDED_IPV4: Final = re.compile(r"(?<=:)[0-9]+(?:\.[0-9]+){3}\Z")
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9a-fA-F])0+(?=[0-9a-fA-F])")
_ZONE: Final = re.compile(r"0*([0-9]{1,10})")
_MAX_ZONE: Final = 2**31 - 1


def canonical_ip(text: str) -> str | None:
    """Return the canonical text of a literal IPv4 or IPv6 address, or null for anything else.

    IPv6 is abbreviated and lower case; an IPv4-mapped IPv6 address becomes IPv4. Null for host
    names, CIDR ranges, zone ids, brackets, leading zeros in IPv4, short forms and blanks.

    Source: RFC 5952; RFC 4291 2.5.5.2 for IPv4-mapped addresses.
    """
    if _IPV4.fullmatch(text):
        return text
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return None if address.scope_id else str(address.ipv4_mapped or address)


def java_host_text(address: str) -> str:
    """Return the address as Java prints it, which is what a broker compares with an ACL's host.

    IPv4 is dotted; IPv6 has all eight groups, lower case, without leading zeros; an IPv4-mapped
    address is IPv4. A zone id is left out: it names an interface of this machine, not of a broker.

    Raises:
        ValueError: Not a literal address.

    Source: ``InetAddress.getHostAddress``.
    """
    canonical = canonical_ip(address.partition("%")[0])
    if canonical is None:
        message = f"{address!r} is not a literal IPv4 or IPv6 address"
        raise ValueError(message)
    if ":" not in canonical:
        return canonical
    groups = ipaddress.IPv6Address(canonical).exploded.split(":")
    return ":".join(format(int(group, 16), "x") for group in groups)


def enforced_address(text: str) -> str | None:
    """Return the canonical address that a broker enforces for a stored ``ip`` name.

    Reads what Java reads: short forms (``1.2.3`` is 1.2.0.3, ``16909060`` is 1.2.3.4), leading
    zeros as decimal, brackets, long groups, a numeric zone id (which does not count). Null for
    host names, which every node looks up for itself, and for whatever depends on the node.

    Source: ``InetAddress.getByName``, ``sun.net.util.IPAddressUtil``.
    """
    canonical = canonical_ip(text)
    if canonical is not None:
        return canonical
    bracketed = text.startswith("[") and text.endswith("]")
    inner = text[1:-1] if bracketed else text
    return (None if bracketed else _java_ipv4(inner)) or _java_ipv6(inner)


def _java_ipv4(text: str) -> str | None:
    if len(text) > _JAVA_IPV4_MAX_LENGTH or not _JAVA_IPV4.fullmatch(text):
        return None
    *octets, rest = (int(octet) for octet in text.split("."))
    free_bytes = 4 - len(octets)
    if any(octet > 0xFF for octet in octets) or rest >= 1 << 8 * free_bytes:
        return None
    return str(ipaddress.IPv4Address(bytes(octets) + rest.to_bytes(free_bytes, "big")))


def _java_ipv6(text: str) -> str | None:
    literal, has_zone, zone = text.partition("%")
    number = _ZONE.fullmatch(zone)
    if has_zone and not (number and int(number[1]) <= _MAX_ZONE):
        return None
    embedded = _EMBEDDED_IPV4.search(literal)
    groups = literal[: embedded.start()] if embedded else literal
    tail = _java_ipv4(embedded.group()) if embedded else ""
    if tail is None or ":" not in groups:
        return None
    address = canonical_ip(_LEADING_ZEROS.sub("", groups) + tail)
    return None if has_zone and ":" not in (address or "") else address
