"""Headers in which a proxy says which certificate its caller showed."""

import base64
import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from app.domain.errors import UnreadableRequestError, Violation
from app.http.authentication.forwarded import split_outside_quotes
from app.http.errors import InvalidCertificateError

_BYTE_SEQUENCE: Final = re.compile(r":([A-Za-z0-9+/]*={0,2}):")
_PAIR: Final = re.compile(r"""\s*([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^"\s,;]*))\s*""")
_PEM: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)\n-----END CERTIFICATE-----\n?"
)
_NO_CERT: Final = "The proxy's header X-Forwarded-Client-Cert is not one element with one Cert."
_SEVERAL_CODE: Final = "several-credentials"
_SEVERAL: Final = "Show one certificate, in one header."


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
        violation = Violation(header.field, _SEVERAL_CODE, _SEVERAL)
        raise UnreadableRequestError(_SEVERAL, code=_SEVERAL_CODE, violations=[violation])
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
    given = [(pair[1].lower(), pair[2] or pair[3] or "") for pair in pairs if pair is not None]
    certificates = [value for name, value in given if name == "cert"]
    hashes = {value.lower() for name, value in given if name == "hash"}
    if len(given) != len(pairs) or len(certificates) != 1:
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
    """Return what is encoded, where it is encoded in the one right way.

    Raises:
        ValueError: It is not, or it is nothing.
    """
    data = base64.b64decode(text, validate=True)
    if not data or base64.b64encode(data).decode() != text:
        message = "this is not canonical base64"
        raise ValueError(message)
    return data
