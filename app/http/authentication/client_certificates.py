"""Whose a client certificate is: the principal that a broker would make of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from app.http.authentication.distinguished_names import java_name, subject_of
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.authentication.principals import principal_of
from app.http.errors import InvalidCertificateError, InvalidTokenError
from app.service.runtime.clock import utc_now

_REMEMBERED: Final = 1024
"""Certificates whose principal is kept, so that a connection's second request costs nothing."""


@dataclass(frozen=True, slots=True)
class _Identity:
    """Of a certificate: its principal, and when it is good (both ends inclusive)."""

    principal: str
    begins: datetime
    ends: datetime


class ClientCertificates:
    """Judges certificates that somebody has shown to own.

    Args:
        mapping: From the subject to the user name.
        issuers: One of them must have signed it; empty where that was seen to before.
        now: The wall clock.
    """

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
        """Return the principal of a certificate in DER.

        Raises:
            InvalidCertificateError: Malformed, not good today, of another issuer, or of nobody.
        """
        identity = self._identity(certificate)
        now = self._now()
        if not identity.begins <= now <= identity.ends:
            raise InvalidCertificateError("The certificate is not valid yet, or has expired.")
        return identity.principal

    def _read(self, der: bytes) -> _Identity:
        try:
            certificate = x509.load_der_x509_certificate(der)
            name = java_name(subject_of(certificate.tbs_certificate_bytes))
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
