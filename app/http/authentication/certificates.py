"""Client certificates: of this listener itself, or in a header of a trusted proxy."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from app.domain.entities import Caller
from app.http.authentication.authenticator import (
    Presented,
    host_of,
    principal_of,
    several_credentials,
)
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.authentication.proxies import split_outside_quotes
from app.http.authentication.x500_names import java_subject
from app.http.errors import InvalidCertificateError, InvalidTokenError
from app.service.runtime.clock import utc_now

_REMEMBERED: Final = 1024
"""Certificates whose principal is cached, so that a connection's second request costs nothing."""


@dataclass(frozen=True, slots=True)
class _Identity:
    """Of a certificate: its principal, and when it is good (both ends inclusive)."""

    principal: str
    begins: datetime
    ends: datetime


class ClientCertificates:
    """Judges certificates whose owner has proved to have the key; ``issuers`` may be empty."""

    def __init__(
        self,
        mapping: PrincipalMapping,
        issuers: Sequence[x509.Certificate] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._mapping = mapping
        self._issuers = tuple(issuers)
        self._now = now
        self._identity = lru_cache(_REMEMBERED)(self._read)

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
        if self._issuers:
            issuer = self._issuer_of(certificate)
            begins = max(begins, issuer.not_valid_before_utc)
            ends = min(ends, issuer.not_valid_after_utc)
        return _Identity(self._principal_of(name), begins, ends)

    def _issuer_of(self, certificate: x509.Certificate) -> x509.Certificate:
        for issuer in self._issuers:
            try:
                certificate.verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature):
                continue
            return issuer
        raise InvalidCertificateError("The certificate is of no accepted issuer.")

    def _principal_of(self, distinguished_name: str) -> str:
        user_name = self._mapping.user_name(distinguished_name)
        if user_name is None:
            raise InvalidCertificateError("No mapping rule fits the certificate's subject.")
        try:
            return principal_of(user_name)
        except InvalidTokenError as refusal:
            raise InvalidCertificateError(refusal.detail) from None


_BYTE_SEQUENCE: Final = re.compile(r":([A-Za-z0-9+/]*={0,2}):")
_PAIR: Final = re.compile(r"""\s*([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^"\s,;]*))\s*""")
_PEM: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)\n-----END CERTIFICATE-----\n?"
)
_NO_CERT: Final = "The proxy's header X-Forwarded-Client-Cert is not one element with one Cert."


class ClientCertHeader(StrEnum):
    """The header that is believed, as ``QUOTAS_CLIENT_CERT_HEADER`` names it."""

    NONE = "none"
    CLIENT_CERT = "client-cert"
    XFCC = "xfcc"

    @property
    def field(self) -> str:
        """The name of the header."""
        return "x-forwarded-client-cert" if self is ClientCertHeader.XFCC else "client-cert"


def read_certificate(header: ClientCertHeader, values: Sequence[str]) -> bytes:
    """Return the certificate, in DER, that the lines of a header hold.

    Raises:
        UnreadableRequestError: They hold several.
        InvalidCertificateError: They cannot be read, or hold none.
    """
    items = [item for value in values for item in split_outside_quotes(value, ",")]
    if len(items) != 1:
        raise several_credentials("Show one certificate, in one header.", header.field)
    read = _envoys if header is ClientCertHeader.XFCC else _byte_sequence
    return read(items[0].strip(" \t"))


def _byte_sequence(item: str) -> bytes:
    """Read an item of ``Client-Cert``. Source: RFC 9440 2.1, RFC 8941 3.3.5."""
    found = _BYTE_SEQUENCE.fullmatch(item)
    try:
        return _base64(found[1] if found else "")
    except ValueError:
        raise InvalidCertificateError("The proxy's header Client-Cert cannot be read.") from None


def _envoys(element: str) -> bytes:
    """Read an element of ``X-Forwarded-Client-Cert``: ``Hash=...;Cert="...";Subject="..."``.

    Source: Envoy, "HTTP header manipulation", x-forwarded-client-cert.
    """
    pairs = [_PAIR.fullmatch(text) for text in split_outside_quotes(element, ";")]
    members = [(pair[1].lower(), pair[2] or pair[3] or "") for pair in pairs if pair is not None]
    certificates = [value for name, value in members if name == "cert"]
    hashes = {value.lower() for name, value in members if name == "hash"}
    if len(members) != len(pairs) or len(certificates) != 1:
        raise InvalidCertificateError(_NO_CERT)
    try:
        certificate = _from_pem(unquote(certificates[0], errors="strict"))
    except ValueError:
        raise InvalidCertificateError(_NO_CERT) from None
    if not hashes <= {hashlib.sha256(certificate).hexdigest()}:
        raise InvalidCertificateError("The proxy's Hash is not that of the certificate.")
    return certificate


def _from_pem(text: str) -> bytes:
    found = _PEM.fullmatch(text)
    return _base64(found[1].replace("\n", "") if found else "")


def _base64(text: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    if not data or base64.b64encode(data).decode() != text:
        message = "this is not canonical base64"
        raise ValueError(message)
    return data


CERTIFICATE: Final = "client-certificate"
PROXY_CERTIFICATE: Final = "proxy-certificate"
"""How the audit log names these methods."""

_SCHEME: Final = "Certificate"
"""No registered scheme names certificates of TLS, and a 401 must name one."""


class DirectCertificate:
    """The certificate of the TLS connection.

    That of a trusted proxy is the proxy's own: it says nothing of the caller.
    """

    name = CERTIFICATE
    advice = "Show a client certificate"
    scheme = _SCHEME

    def __init__(self, certificates: ClientCertificates) -> None:
        self._certificates = certificates

    def is_presented(self, presented: Presented) -> bool:
        """Tell whether the caller showed one when it connected."""
        return presented.certificate is not None and not presented.is_from_proxy

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller."""
        _refuse_another_credential(presented)
        principal = self._certificates.principal(presented.certificate or b"")
        return Caller(principal, host_of(presented.address), self.name)


class ProxyCertificate:
    """The certificate that a trusted proxy received, as it notes in a header."""

    name = PROXY_CERTIFICATE
    advice = "Show a client certificate to the proxy before this service"
    scheme = _SCHEME

    def __init__(self, header: ClientCertHeader, certificates: ClientCertificates) -> None:
        self._header = header
        self._certificates = certificates

    def is_presented(self, presented: Presented) -> bool:
        """Tell whether it comes from a trusted proxy, with such a header that is not empty."""
        values = presented.headers.getlist(self._header.field)
        return presented.is_from_proxy and any(value.strip() for value in values)

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller."""
        _refuse_another_credential(presented)
        values = presented.headers.getlist(self._header.field)
        principal = self._certificates.principal(read_certificate(self._header, values))
        return Caller(principal, host_of(presented.address), self.name)


def _refuse_another_credential(presented: Presented) -> None:
    """Refuse an ``Authorization`` header of any kind, also of one that is not taken here."""
    if "authorization" in presented.headers:
        raise several_credentials("Show a certificate or an Authorization header, not both.")
