"""Headers that say whose certificate was shown: forged, unless a trusted proxy sends them."""

import re
from typing import Final

from app.domain.errors import Violation
from app.http.authentication.presented import Presented
from app.http.errors import UntrustedIdentityError

_CERTIFICATE_HEADER: Final = re.compile(r"clientcert|ssl(client|cert)|tlsclient|xfcc")
"""``Client-Cert``, ``X-Forwarded-Client-Cert`` and what other proxies call them, such as
``X-SSL-Client-Cert``, ``X-Forwarded-Tls-Client-Cert`` or ``X-ARR-ClientCert``; in any case, with
dashes, underscores or dots, for a proxy may take these for the same."""

_SEPARATORS: Final = re.compile(r"[-_.]")


def refuse_forged_identity(presented: Presented) -> None:
    """Refuse such headers unless a trusted proxy sends them.

    Raises:
        UntrustedIdentityError: There is one.
    """
    if presented.is_from_proxy:
        return
    others = set(presented.headers) - _HARMLESS
    forged = sorted({name for name in others if _names_a_certificate(name)})
    if not forged:
        return
    detail = "Only a proxy of QUOTAS_TRUSTED_PROXIES may say which certificate was shown."
    violations = [
        Violation(name, UntrustedIdentityError.default_code, "Leave this header out.")
        for name in forged
    ]
    raise UntrustedIdentityError(detail, violations=violations)


def _names_a_certificate(name: str) -> bool:
    return _CERTIFICATE_HEADER.search(_SEPARATORS.sub("", name.lower())) is not None


_COMMON: Final = (
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "traceparent",
    "user-agent",
    "x-forwarded-for",
    "x-request-id",
)
_HARMLESS: Final = frozenset(name for name in _COMMON if not _names_a_certificate(name))
"""What most requests have, judged once."""

HARMLESS_NAMES: Final = frozenset(name.encode("ascii") for name in _HARMLESS)
"""The same, as a server gives them: headers that name no certificate, whoever sends them."""
