"""Whose tokens are accepted: those of the file, those of an identity provider."""

import ssl

from app.http.authentication.bearer_tokens import BearerTokens
from app.http.authentication.identity_provider import IdentityProvider
from app.http.authentication.json_web_tokens import ALGORITHMS, TokenRules
from app.http.authentication.signing_keys import KeySource, is_confidential
from app.http.authentication.token_file import TokensFileError
from app.settings import PREFIX, Settings, SettingsError


def bearer_tokens(settings: Settings) -> BearerTokens | None:
    """Return the tokens of the file, or null where there is none.

    Raises:
        SettingsError: The file cannot be used.
    """
    if settings.tokens_file is None:
        return None
    try:
        return BearerTokens(settings.tokens_file)
    except TokensFileError as error:
        message = f"QUOTAS_TOKENS_FILE: {error}"
        raise SettingsError(message) from None


def identity_provider(settings: Settings) -> IdentityProvider | None:
    """Return whose signed tokens are accepted, or null where nobody's are.

    Raises:
        SettingsError: The values do not fit together, or a file cannot be read.
    """
    issuer, audience = settings.oidc_issuer, settings.oidc_audience
    if issuer is None:
        return None
    faults = [
        f"{PREFIX}OIDC_{name}: {value} must begin with https:// (http:// on this machine only)."
        for name, value in (("ISSUER", issuer), ("JWKS_URL", settings.oidc_jwks_url))
        if value is not None and not is_confidential(value)
    ]
    algorithms = frozenset(name.strip() for name in settings.oidc_algorithms.split(","))
    if not algorithms <= ALGORITHMS:
        faults.append(f"QUOTAS_OIDC_ALGORITHMS: it takes some of {', '.join(sorted(ALGORITHMS))}.")
    if not audience:
        faults.append("QUOTAS_OIDC_AUDIENCE is needed with QUOTAS_OIDC_ISSUER and not set.")
    try:
        trusted = ssl.create_default_context(cafile=settings.oidc_ca_file)
    except OSError as error:
        faults.append(f"QUOTAS_OIDC_CA_FILE: it cannot be used: {error.strerror or error}.")
    if faults:
        raise SettingsError("\n".join(faults))
    rules = TokenRules(issuer, audience or "", algorithms, settings.oidc_principal_claim)
    return IdentityProvider(rules, KeySource(issuer, settings.oidc_jwks_url), trusted)
