"""In which ways callers may say who they are."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from app.http.authentication.client_cert_header import ClientCertHeader
from app.settings import Settings, SettingsError


class Way(StrEnum):
    """A way, as ``QUOTAS_AUTHENTICATORS`` names it; in the order that holds without the setting."""

    BEARER = "bearer"
    CERTIFICATE = "certificate"
    PROXY_CERTIFICATE = "proxy-certificate"
    BASIC = "basic"


def _has_tokens(settings: Settings) -> bool:
    return settings.tokens_file is not None or settings.oidc_issuer is not None


def _logs_callers_in(settings: Settings) -> bool:
    return settings.basic_sasl_mechanism is not None


def _has_client_authorities(settings: Settings) -> bool:
    return settings.tls_client_ca_file is not None


def _has_certificate_header(settings: Settings) -> bool:
    return settings.client_cert_header is not ClientCertHeader.NONE


_CONFIGURED: Final[Mapping[Way, Callable[[Settings], bool]]] = {
    Way.BEARER: _has_tokens,
    Way.CERTIFICATE: _has_client_authorities,
    Way.PROXY_CERTIFICATE: _has_certificate_header,
    Way.BASIC: _logs_callers_in,
}
"""Tells whether what the way needs is set."""


def ways(settings: Settings) -> tuple[Way, ...]:
    """Return the ways that are open, in the order in which callers are told of them.

    Raises:
        SettingsError: There is none, or one is named twice, is unknown or is not configured.
    """
    configured = [way for way, is_set in _CONFIGURED.items() if is_set(settings)]
    if not configured:
        message = (
            "QUOTAS_TOKENS_FILE, QUOTAS_OIDC_ISSUER or another credential of QUOTAS_AUTHENTICATORS "
            "is needed and none is set: nobody can call."
        )
        raise SettingsError(message)
    if not settings.authenticators:
        return tuple(configured)
    named = [name.strip() for name in settings.authenticators.split(",")]
    chosen = [way for name in named for way in configured if way == name]
    if len(chosen) != len(named) or len(set(named)) != len(named):
        message = (
            "QUOTAS_AUTHENTICATORS: it takes each of these once at most, which are configured: "
            f"{', '.join(configured)}."
        )
        raise SettingsError(message)
    return tuple(chosen)
