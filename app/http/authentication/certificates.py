"""Client certificates of the TLS connection."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier
from cryptography.x509.oid import NameOID

from app.domain.entities import Caller
from app.http.authentication.authenticator import (
    Presented,
    host_of,
    principal_of,
    several_credentials,
)
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.errors import InvalidCertificateError, InvalidTokenError
from app.service.runtime.clock import utc_now

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

    That is how a broker's ACLs name it. Source: ``X500Principal.getName()``, that is
    ``sun.security.x509.AVA.toRFC2253String``; compared in
    tests/unit/http/authentication/test_principal_mapping.py with what Java 17, 21 and 25 make of
    the same bytes.

    Raises:
        ValueError: It breaks the Distinguished Encoding Rules (X.690); or releases of Java write
            it differently, so that what the broker makes of it is open: see ``_text``.
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


_REMEMBERED: Final = 1024
"""Certificates whose principal is cached, so that a connection's second request costs nothing."""


@dataclass(frozen=True, slots=True)
class _Identity:
    """Of a certificate: its principal, and when it is good (both ends inclusive)."""

    principal: str
    begins: datetime
    ends: datetime


CERTIFICATE: Final = "client-certificate"
"""How the audit log names this method."""

_SCHEME: Final = "Certificate"
"""No registered scheme names certificates of TLS, and a 401 must name one."""


class ClientCertificates:
    """Takes the certificate of the TLS connection, whose owner has proved to have the key.

    It is of an accepted authority. That of a trusted proxy is the proxy's own: it says nothing of
    the caller.
    """

    name = CERTIFICATE
    advice = "Show a client certificate"
    scheme = _SCHEME

    def __init__(self, mapping: PrincipalMapping, now: Callable[[], datetime] = utc_now) -> None:
        self._mapping = mapping
        self._now = now
        self._identity = lru_cache(_REMEMBERED)(self._read)

    def is_presented(self, presented: Presented) -> bool:
        """Tell whether the caller showed one when it connected."""
        return presented.certificate is not None and not presented.is_from_proxy

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller.

        Raises:
            UnreadableRequestError: There is an ``Authorization`` header, too, of whatever kind.
            InvalidCertificateError: It is not valid now, or names nobody.
        """
        if "authorization" in presented.headers:
            raise several_credentials("Show a certificate or an Authorization header, not both.")
        principal = self.principal(presented.certificate or b"")
        return Caller(principal, host_of(presented.address), self.name)

    def principal(self, certificate: bytes) -> str:
        """Return the principal of a certificate in DER."""
        identity = self._identity(certificate)
        now = self._now()
        if not identity.begins <= now <= identity.ends:
            raise InvalidCertificateError(
                "The certificate is not valid yet, or has expired; use one that is valid."
            )
        return identity.principal

    def _read(self, der: bytes) -> _Identity:
        try:
            certificate = x509.load_der_x509_certificate(der)
            name = java_subject(certificate.tbs_certificate_bytes)
        except ValueError as error:
            detail = f"The certificate cannot be read: {error}."
            raise InvalidCertificateError(detail) from None
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return _Identity(self._principal_of(name), begins, ends)

    def _principal_of(self, distinguished_name: str) -> str:
        user_name = self._mapping.user_name(distinguished_name)
        if user_name is None:
            raise InvalidCertificateError("No mapping rule fits the certificate's subject.")
        try:
            return principal_of(user_name)
        except InvalidTokenError as refusal:
            raise InvalidCertificateError(refusal.detail) from None
