"""Client certificates: shown to this listener itself, or to a trusted proxy before it."""

from typing import Final

from app.domain.entities import Caller
from app.domain.errors import UnreadableRequestError, Violation
from app.http.authentication.client_cert_header import ClientCertHeader, read_certificate
from app.http.authentication.client_certificates import ClientCertificates
from app.http.authentication.hosts import host_of
from app.http.authentication.presented import Presented

CERTIFICATE: Final = "client-certificate"
PROXY_CERTIFICATE: Final = "proxy-certificate"
"""How the audit log names these methods."""

_SCHEME: Final = "Certificate"
"""No registered scheme names certificates of TLS, and a 401 must name one."""

_CODE: Final = "several-credentials"
_SEVERAL: Final = "Show a certificate or an Authorization header, not both."


class DirectCertificate:
    """The certificate of the TLS connection.

    That of a trusted proxy is the proxy's own: it says nothing of the caller.
    """

    name = CERTIFICATE
    advice = "Show a client certificate"
    scheme = _SCHEME

    def __init__(self, certificates: ClientCertificates) -> None:
        self._certificates = certificates

    def is_shown(self, presented: Presented) -> bool:
        """Tell whether the caller showed one when it connected."""
        return presented.certificate is not None and not presented.is_from_proxy

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller.

        Raises:
            UnreadableRequestError: Another credential is shown, too.
            UnauthenticatedError: The address of the caller is not known.
            InvalidCertificateError: As ``ClientCertificates.principal``.
        """
        _refuse_another_credential(presented)
        principal = self._certificates.principal(presented.certificate or b"")
        return Caller(principal, host_of(presented.address), self.name)


class ProxyCertificate:
    """The certificate that a trusted proxy was shown, as it says in a header.

    Args:
        header: The one that is believed.
        certificates: Judges what it holds.
    """

    name = PROXY_CERTIFICATE
    advice = "Show a client certificate to the proxy before this service"
    scheme = _SCHEME

    def __init__(self, header: ClientCertHeader, certificates: ClientCertificates) -> None:
        self._header = header
        self._certificates = certificates

    def is_shown(self, presented: Presented) -> bool:
        """Tell whether it comes from a trusted proxy, with such a header that is not empty."""
        values = presented.headers.getlist(self._header.field)
        return presented.is_from_proxy and any(value.strip() for value in values)

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller.

        Raises:
            UnreadableRequestError: Several certificates, or another credential, too.
            UnauthenticatedError: The address of the caller is not known.
            InvalidCertificateError: As ``read_certificate`` and ``ClientCertificates.principal``.
        """
        _refuse_another_credential(presented)
        values = presented.headers.getlist(self._header.field)
        principal = self._certificates.principal(read_certificate(self._header, values))
        return Caller(principal, host_of(presented.address), self.name)


def _refuse_another_credential(presented: Presented) -> None:
    """Refuse an ``Authorization`` header of any kind, also of one that is not taken here."""
    if "authorization" in presented.headers:
        violations = [Violation("authorization", _CODE, _SEVERAL)]
        raise UnreadableRequestError(_SEVERAL, code=_CODE, violations=violations)
