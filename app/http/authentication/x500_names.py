"""Distinguished names as a Java broker writes them, which is how ACLs name them.

Source: ``X500Principal.getName()``, that is ``sun.security.x509.AVA.toRFC2253String``; compared in
tests/unit/http/authentication/test_principal_mapping.py with what Java 17, 21 and 25 make of the
same bytes. What breaks the Distinguished Encoding Rules (X.690) is a ``ValueError``.
"""

import re
from typing import Annotated, Final

from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier
from cryptography.x509.oid import NameOID

_SEQUENCE: Final = b"\x30"
_SET: Final = b"\x31"
_UTF8_STRING: Final = b"\x0c"
_BMP_STRING: Final = b"\x1e"
_ASCII_STRINGS: Final = frozenset({b"\x13", b"\x14", b"\x16", b"\x1b"})
"""PrintableString, T61String, IA5String, GeneralString."""

_NAMES: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.USER_ID: "UID",
    NameOID.DOMAIN_COMPONENT: "DC",
}
"""Those of RFC 2253; Java writes any other type in figures, and its value in hexadecimal."""

_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_BLANKS: Final = re.compile(r"[ \r]")
_EDGES: Final = re.compile(r"([ \r]*)(.*?)([ \r]*)", re.DOTALL)


@asn1.sequence
class _TbsCertificate:
    """Source: RFC 5280 4.1; what is not read is left as it is."""

    version: Annotated[int | None, asn1.Explicit(0)]
    serial: asn1.TLV
    signature: asn1.TLV
    issuer: asn1.TLV
    validity: asn1.TLV
    subject: list[asn1.TLV]
    key: asn1.TLV
    issuer_id: Annotated[asn1.BitString | None, asn1.Implicit(1)]
    subject_id: Annotated[asn1.BitString | None, asn1.Implicit(2)]
    extensions: Annotated[list[asn1.TLV] | None, asn1.Explicit(3)]


@asn1.sequence
class _Attribute:
    type: ObjectIdentifier
    value: asn1.TLV


@asn1.sequence
class _Level:
    attributes: list[_Attribute]


def java_subject(tbs_certificate: bytes) -> str:
    """Return the subject of a certificate, in DER and without its signature, as Java writes it.

    Raises:
        ValueError: It is malformed; or releases of Java write it differently, so that what the
            broker makes of it is open: see ``_text``.
    """
    levels = asn1.decode_der(_TbsCertificate, tbs_certificate).subject
    return ",".join(_level(level) for level in reversed(levels))


def _level(level: asn1.TLV) -> str:
    """Return the attributes of a level; as in Java they stand in any order, which DER forbids."""
    if level.tag_bytes != _SET or not level.data:
        message = "a level of the name is not a set of attributes"
        raise ValueError(message)
    listed = _element(_SEQUENCE, _element(_SEQUENCE, bytes(level.data)))
    return "+".join(map(_attribute, asn1.decode_der(_Level, listed).attributes))


def _element(tag: bytes, content: bytes) -> bytes:
    """Return an element in DER; the library writes the length."""
    return tag + asn1.encode_der(content)[1:]


def _attribute(attribute: _Attribute) -> str:
    tag, content = attribute.value.tag_bytes, bytes(attribute.value.data)
    name = _NAMES.get(attribute.type)
    text = None if name is None else _text(tag, content)
    if text is None:
        return f"{name or attribute.type.dotted_string}=#{_element(tag, content).hex()}"
    return f"{name}={_escape(text)}"


def _text(tag: bytes, content: bytes) -> str | None:
    """Return the text of a value; null where Java writes its bytes in hexadecimal.

    Java up to 24 reads every string as UTF-8, Java 25 reads each by the rules of its type; what
    they do not agree on is refused. So is what is no UTF-8, of which Java loses bytes: two
    certificates would be one principal.
    """
    if tag == _UTF8_STRING:
        return content.decode("utf-8")
    if tag in _ASCII_STRINGS:
        return content.decode("ascii")
    if tag == _BMP_STRING and content:
        message = "what a BMPString is to a broker depends on its release of Java"
        raise ValueError(message)
    return "" if tag == _BMP_STRING else None


def _escape(text: str) -> str:
    escaped = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", r"\00")
    edges = _EDGES.fullmatch(escaped)
    if edges is None:
        return escaped
    before, middle, after = edges.groups()
    return _BLANKS.sub(r"\\\g<0>", before) + middle + _BLANKS.sub(r"\\\g<0>", after)
