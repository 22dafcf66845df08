"""Distinguished names as a Java broker writes them, which is how ACLs name them.

Source: ``X500Principal.getName()``, that is ``sun.security.x509.AVA.toRFC2253String``; compared in
tests/unit/http/authentication/test_distinguished_names.py with what Java 17, 21 and 25 make of the
same bytes.
"""

import re
from typing import Final

from app.http.authentication import der

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
    """Return the subject of a certificate as it is encoded.

    Args:
        tbs_certificate: What is signed of the certificate, in DER.

    Raises:
        ValueError: It is malformed.
    """
    fields = list(der.elements(der.only(tbs_certificate, der.SEQUENCE).content))
    if fields and fields[0].tag == _VERSION_TAG:
        del fields[0]
    if len(fields) <= _BEFORE_SUBJECT:
        message = "the certificate has no subject"
        raise ValueError(message)
    return fields[_BEFORE_SUBJECT].encoded


def java_name(name: bytes) -> str:
    """Return a distinguished name, in DER, as Java writes it.

    Raises:
        ValueError: It is malformed; or releases of Java write it in several ways, so that what the
            broker makes of it cannot be known: see ``_text``.
    """
    levels = list(der.elements(der.only(name, der.SEQUENCE).content))
    return ",".join(_level(level) for level in reversed(levels))


def _level(level: der.Element) -> str:
    if level.tag != der.SET or not level.content:
        message = "a level of the name is not a set of attributes"
        raise ValueError(message)
    return "+".join(_attribute(one) for one in der.elements(level.content))


def _attribute(attribute: der.Element) -> str:
    parts = list(der.elements(attribute.content))
    if attribute.tag != der.SEQUENCE or len(parts) != 2 or parts[0].tag != der.OBJECT_IDENTIFIER:
        message = "an attribute of the name is not a type and a value"
        raise ValueError(message)
    type_, value = der.dotted(parts[0].content), parts[1]
    name = _NAMES.get(type_)
    text = None if name is None else _text(value)
    if text is None:
        return f"{name or type_}=#{value.encoded.hex()}"
    return f"{name}={_escaped(text)}"


def _text(value: der.Element) -> str | None:
    """Return the text of a value; null where Java writes its bytes in hexadecimal.

    Java up to 24 reads every string as UTF-8, Java 25 reads each by the rules of its type; what
    they do not agree on is refused. So is what is no UTF-8, of which Java loses a part: two
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


def _escaped(text: str) -> str:
    escaped = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", r"\00")
    edges = _EDGES.fullmatch(escaped)
    if edges is None:
        return escaped
    before, middle, after = edges.groups()
    return _BLANKS.sub(r"\\\g<0>", before) + middle + _BLANKS.sub(r"\\\g<0>", after)
