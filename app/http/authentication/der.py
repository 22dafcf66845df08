"""The Distinguished Encoding Rules, as far as a certificate's subject needs them.

Source: X.690 8 and 10.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06

_LONG_TAG: Final = 0x1F
_LONG_LENGTH: Final = 0x80
_MAX_LENGTH_BYTES: Final = 3
_FIRST_ARC_FACTOR: Final = 40


@dataclass(frozen=True, slots=True)
class Element:
    """One element.

    Attributes:
        tag: Its identifier octet.
        content: Without tag and length.
        encoded: All of it.
    """

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """Read one element after the other until the end.

    Raises:
        ValueError: This is not DER.
    """
    at = 0
    while at < len(data):
        element = _element(data, at)
        yield element
        at += len(element.encoded)


def only(data: bytes, tag: int) -> Element:
    """Read an element of that tag with nothing after it.

    Raises:
        ValueError: It is not.
    """
    found = list(elements(data))
    if len(found) != 1 or found[0].tag != tag:
        message = f"one element of tag {tag:#x} is expected"
        raise ValueError(message)
    return found[0]


def dotted(content: bytes) -> str:
    """Return an object identifier in dotted decimals.

    Raises:
        ValueError: It is none.

    Source: X.690 8.19.
    """
    arcs, value, begun = [], 0, False
    for byte in content:
        if not begun and byte == _LONG_LENGTH:
            message = "an arc of an object identifier has leading zeros"
            raise ValueError(message)
        value = value << 7 | byte & 0x7F
        begun = bool(byte & 0x80)
        if not begun:
            arcs.append(value)
            value = 0
    if begun or not arcs:
        message = "an object identifier ends within an arc"
        raise ValueError(message)
    first = min(arcs[0] // _FIRST_ARC_FACTOR, 2)
    return ".".join(map(str, [first, arcs[0] - first * _FIRST_ARC_FACTOR, *arcs[1:]]))


def _element(data: bytes, at: int) -> Element:
    if data[at] & _LONG_TAG == _LONG_TAG or len(data) < at + 2:
        message = "a tag is of several octets, or has no length"
        raise ValueError(message)
    length, header = data[at + 1], 2
    if length >= _LONG_LENGTH:
        size = length - _LONG_LENGTH
        octets = data[at + 2 : at + 2 + size]
        length, header = int.from_bytes(octets), 2 + size
        if not (1 <= size <= _MAX_LENGTH_BYTES and _is_shortest(length, octets)):
            message = "a length is not in its shortest form"
            raise ValueError(message)
    end = at + header + length
    if end > len(data):
        message = "an element ends after the data"
        raise ValueError(message)
    return Element(data[at], data[at + header : end], data[at:end])


def _is_shortest(length: int, octets: bytes) -> bool:
    return length >= _LONG_LENGTH and octets[0] != 0
