"""Distinguished names as a Java broker writes them, which is how ACLs name them.

Source: ``X500Principal.getName()``, that is ``sun.security.x509.AVA.toRFC2253String``; compared in
tests/unit/http/authentication/test_distinguished_names.py with what Java 17, 21 and 25 make of the
same bytes. Distinguished Encoding Rules: X.690 8 and 10; what breaks them is a ``ValueError``.
"""

import re
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
    """One element: its identifier octet, what is after tag and length, and all of it."""

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """Read one element after the other until the end."""
    at = 0
    while at < len(data):
        element = _element(data, at)
        yield element
        at += len(element.encoded)


def only(data: bytes, tag: int) -> Element:
    """Read an element of that tag with nothing after it."""
    found = list(elements(data))
    if len(found) != 1 or found[0].tag != tag:
        message = f"one element of tag {tag:#x} is expected"
        raise ValueError(message)
    return found[0]


def dotted_decimal(content: bytes) -> str:
    """Return an object identifier in dotted decimals.

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


_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Those of RFC 2253; Java writes any other type in figures, and its value in hexadecimal."""

_UTF8_STRING: Final = 0x0C
_BMP_STRING: Final = 0x1E
_ASCII_STRINGS: Final = frozenset({0x13, 0x14, 0x16, 0x1B})
"""PrintableString, T61String, IA5String, GeneralString."""

_BEFORE_SUBJECT: Final = 4
"""Fields of a TBSCertificate: serial number, signature, issuer, validity. Source: RFC 5280 4.1."""

_VERSION_TAG: Final = 0xA0
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_BLANKS: Final = re.compile(r"[ \r]")
_EDGES: Final = re.compile(r"([ \r]*)(.*?)([ \r]*)", re.DOTALL)


def subject_of(tbs_certificate: bytes) -> bytes:
    """Return the subject of a certificate as it is encoded."""
    fields = list(elements(only(tbs_certificate, SEQUENCE).content))
    if fields and fields[0].tag == _VERSION_TAG:
        del fields[0]
    if len(fields) <= _BEFORE_SUBJECT:
        message = "the certificate has no subject"
        raise ValueError(message)
    return fields[_BEFORE_SUBJECT].encoded


def java_name(name: bytes) -> str:
    """Return a distinguished name, in DER, as Java writes it.

    Raises:
        ValueError: It is malformed; or releases of Java write it differently, so that what the
            broker makes of it is open: see ``_text``.
    """
    levels = list(elements(only(name, SEQUENCE).content))
    return ",".join(_level(level) for level in reversed(levels))


def _level(level: Element) -> str:
    if level.tag != SET or not level.content:
        message = "a level of the name is not a set of attributes"
        raise ValueError(message)
    return "+".join(_attribute(element) for element in elements(level.content))


def _attribute(attribute: Element) -> str:
    members = list(elements(attribute.content))
    if attribute.tag != SEQUENCE or len(members) != 2 or members[0].tag != OBJECT_IDENTIFIER:
        message = "an attribute of the name is not a type and a value"
        raise ValueError(message)
    type_, value = dotted_decimal(members[0].content), members[1]
    name = _NAMES.get(type_)
    text = None if name is None else _text(value)
    if text is None:
        return f"{name or type_}=#{value.encoded.hex()}"
    return f"{name}={_escape(text)}"


def _text(value: Element) -> str | None:
    """Return the text of a value; null where Java writes its bytes in hexadecimal.

    Java up to 24 reads every string as UTF-8, Java 25 reads each by the rules of its type; what
    they do not agree on is refused. So is what is no UTF-8, of which Java loses bytes: two
    certificates would be one principal.
    """
    if value.tag == _UTF8_STRING:
        return value.content.decode("utf-8")
    if value.tag in _ASCII_STRINGS:
        return value.content.decode("ascii")
    if value.tag == _BMP_STRING and value.content:
        message = "what a BMPString is to a broker depends on its release of Java"
        raise ValueError(message)
    return "" if value.tag == _BMP_STRING else None


def _escape(text: str) -> str:
    escaped = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", r"\00")
    edges = _EDGES.fullmatch(escaped)
    if edges is None:
        return escaped
    before, middle, after = edges.groups()
    return _BLANKS.sub(r"\\\g<0>", before) + middle + _BLANKS.sub(r"\\\g<0>", after)
