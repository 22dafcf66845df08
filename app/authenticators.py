"""Builds the configured authenticators; a file that cannot be used is a ``SettingsError``."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import httpx

from app.http.authentication.authenticator import Authenticator
from app.http.authentication.basic import Basic
from app.http.authentication.bearer import Bearer, BearerTokens, TokensFileError
from app.http.authentication.certificates import ClientCertificates
from app.http.authentication.oidc import JsonWebTokens, SigningKeys, TokenRules
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.rate_limits import LoginAttempts
from app.kafka.config import KafkaLogin, key_password
from app.metrics import Metrics
from app.service.auth.sessions import Sessions
from app.settings import AuthenticatorKind, Settings, SettingsError, reveal, unusable_file

OpenSessions = Callable[[KafkaLogin], Sessions]
"""Makes the sessions of a kind of login."""


def open_authenticators(
    settings: Settings, metrics: Metrics, stack: AsyncExitStack, open_sessions: OpenSessions
) -> Sequence[Authenticator]:
    """Return the enabled authenticators; the stack closes them."""
    rules = settings.ssl_principal_mapping_rules
    openers: Mapping[AuthenticatorKind, Callable[[], Authenticator]] = {
        AuthenticatorKind.BEARER: lambda: _bearer(settings, metrics, stack),
        AuthenticatorKind.CERTIFICATE: lambda: ClientCertificates(PrincipalMapping(rules)),
        AuthenticatorKind.BASIC: lambda: _basic(settings, metrics, stack, open_sessions),
    }
    return [openers[kind]() for kind in settings.enabled_authenticators]


def _bearer(settings: Settings, metrics: Metrics, stack: AsyncExitStack) -> Bearer:
    tokens, rules = bearer_tokens(settings), token_rules(settings)
    if rules is None:
        return Bearer(tokens)
    client = httpx.AsyncClient(verify=oidc_authorities(settings), trust_env=False)
    keys = SigningKeys(rules.issuer, settings.oidc_jwks_url, client, metrics.count_key_fetch)
    metrics.watch_key_age(keys.age_s)
    stack.push_async_callback(keys.close)
    return Bearer(tokens, JsonWebTokens(rules, keys))


def _basic(
    settings: Settings, metrics: Metrics, stack: AsyncExitStack, open_sessions: OpenSessions
) -> Basic:
    login = settings.basic_login
    if login is None:
        message = "QUOTAS_AUTHENTICATORS: basic is not configured."
        raise SettingsError(message)
    sessions = open_sessions(login)
    stack.push_async_callback(sessions.close)
    return Basic(sessions, LoginAttempts(partial(metrics.count_rate_limited, "logins")))


def bearer_tokens(settings: Settings) -> BearerTokens | None:
    """Return the tokens of the file, or null where there is none."""
    if settings.tokens_file is None:
        return None
    try:
        return BearerTokens(settings.tokens_file)
    except TokensFileError as error:
        message = f"QUOTAS_TOKENS_FILE: {error}"
        raise SettingsError(message) from None


def token_rules(settings: Settings) -> TokenRules | None:
    """Return what the signed tokens that are accepted must say, or null where none are."""
    if settings.oidc_issuer is None:
        return None
    privileged = (settings.super_users | settings.auditors) - settings.oidc_privileged_principals
    return TokenRules(
        settings.oidc_issuer,
        settings.oidc_audience or "",
        frozenset(settings.oidc_algorithms),
        settings.oidc_principal_claim,
        settings.oidc_principal_prefix,
        frozenset() if settings.oidc_principal_prefix else privileged,
    )


def oidc_authorities(settings: Settings) -> ssl.SSLContext:
    """Return which authorities the identity provider's own certificate must come from."""
    try:
        return ssl.create_default_context(cafile=settings.oidc_ca_file)
    except OSError as error:
        raise unusable_file("oidc_ca_file", error) from None


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return what speaks TLS with callers, or null where nothing does.

    A client certificate is asked for where one could be a credential, and is not demanded, so that
    other credentials are good on the same port. TLS 1.2 is the oldest that is spoken.
    """
    if settings.tls_cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    password = partial(key_password, reveal(settings.tls_key_password))
    try:
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"QUOTAS_TLS_CERT_FILE, QUOTAS_TLS_KEY_FILE: they cannot be used: {reason}."
        raise SettingsError(message) from None
    if settings.tls_client_ca_file is not None:
        try:
            context.load_verify_locations(settings.tls_client_ca_file)
        except OSError as error:
            raise unusable_file("tls_client_ca_file", error) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
