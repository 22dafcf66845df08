"""What the settings mean to the parts of the service, checked before anything starts."""

import logging
import os
import secrets
import socket
import ssl
from pathlib import Path

from app.domain.authorization import AuthorizerSettings, parse_super_users
from app.http.authentication.bearer_tokens import BearerTokens
from app.http.authentication.identity_provider import IdentityProvider
from app.http.authentication.json_web_tokens import ALGORITHMS, TokenRules
from app.http.authentication.signing_keys import KeySource, is_confidential
from app.http.authentication.token_file import TokensFileError
from app.http.rate_limits import Limits
from app.kafka.configuration import KafkaSettings, ssl_context
from app.lives import LifeSettings
from app.postgres.parameters import read_url
from app.service.authorize import AuthorizationPolicy
from app.service.failpoints import Failpoints
from app.service.recover import FINAL_AFTER_S
from app.settings import PREFIX, Mode, Settings, SettingsError

logger = logging.getLogger(__name__)


def kafka_settings(settings: Settings) -> KafkaSettings:
    """Return how to reach the brokers.

    Raises:
        SettingsError: The values do not fit together, or a file cannot be read.
    """
    password = settings.kafka_sasl_password
    try:
        kafka = KafkaSettings(
            settings.kafka_bootstrap_servers,
            settings.kafka_security_protocol,
            settings.kafka_sasl_mechanism,
            settings.kafka_sasl_username,
            password.get_secret_value() if password else None,
            _text(settings.kafka_ssl_ca_file),
            _text(settings.kafka_ssl_cert_file),
            _text(settings.kafka_ssl_key_file),
        )
        ssl_context(kafka)
    except ValueError as error:
        message = f"QUOTAS_KAFKA_…: {error}"
        raise SettingsError(message) from None
    except OSError as error:
        message = f"QUOTAS_KAFKA_SSL_…: A file cannot be used: {error.strerror or error}."
        raise SettingsError(message) from None
    return kafka


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def database_url(settings: Settings) -> str:
    """Return the URL of the audit log.

    Raises:
        SettingsError: It cannot be read.
    """
    url = settings.database_url.get_secret_value()
    try:
        read_url(url)
    except ValueError as error:
        message = f"QUOTAS_DATABASE_URL: {error}"
        raise SettingsError(message) from None
    return url


def refuse_every_fault(settings: Settings) -> None:
    """Read everything once, so that all that is wrong is told at once.

    Raises:
        SettingsError: With a line for each setting that cannot be used.
    """
    faults = []
    for read in (
        kafka_settings,
        database_url,
        authorization_policy,
        bearer_tokens,
        identity_provider,
    ):
        try:
            read(settings)
        except SettingsError as error:
            faults.append(str(error))
    if faults:
        raise SettingsError("\n".join(faults))


def authorization_policy(settings: Settings) -> AuthorizationPolicy:
    """Return what the settings say about the cluster's authorizer.

    Raises:
        SettingsError: A list of principals cannot be read.
    """
    super_users = _principals("QUOTAS_SUPER_USERS", settings.super_users)
    return AuthorizationPolicy(
        AuthorizerSettings(super_users, settings.allow_everyone_if_no_acl_found),
        settings.insecure_allow_without_authorizer,
        _principals("QUOTAS_AUDITORS", settings.auditors),
    )


def limits(settings: Settings) -> Limits:
    """Return what one caller may have.

    Raises:
        SettingsError: A limit is off, and the mode is production.
    """
    names = (
        "reads_per_s",
        "alterations_per_s",
        "requests_at_once",
        "authentication_failures_per_s",
    )
    off = ", ".join(f"{PREFIX}{name.upper()}" for name in names if not getattr(settings, name))
    if off and settings.mode is Mode.PRODUCTION:
        message = f"{off}: 0 is no limit, which needs QUOTAS_MODE=development."
        raise SettingsError(message)
    if off:
        logger.warning("one caller may use up this process: %s is 0", off)
    return Limits(*(getattr(settings, name) for name in names))


def _principals(name: str, text: str) -> frozenset[str]:
    try:
        return parse_super_users(text)
    except ValueError as error:
        message = f"{name}: {error}"
        raise SettingsError(message) from None


def bearer_tokens(settings: Settings) -> BearerTokens | None:
    """Return the tokens of the file, or null where there is none.

    Raises:
        SettingsError: The file cannot be used, or there is no way at all to call.
    """
    if settings.tokens_file is None and settings.oidc_issuer is None:
        message = (
            "QUOTAS_TOKENS_FILE or QUOTAS_OIDC_ISSUER is needed and neither is set: without it "
            "nobody can call."
        )
        raise SettingsError(message)
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
        trusted = ssl.create_default_context(cafile=_text(settings.oidc_ca_file))
    except OSError as error:
        faults.append(f"QUOTAS_OIDC_CA_FILE: it cannot be used: {error.strerror or error}.")
    if faults:
        raise SettingsError("\n".join(faults))
    rules = TokenRules(issuer, audience or "", algorithms, settings.oidc_principal_claim)
    return IdentityProvider(rules, KeySource(issuer, settings.oidc_jwks_url), trusted)


def life_settings(settings: Settings) -> LifeSettings:
    """Return how alterations are lived; what is for tests works in development only.

    Raises:
        SettingsError: There is no such failpoint, or the mode is production.
    """
    tested = settings.test_failpoint or settings.test_final_after_s != FINAL_AFTER_S
    if tested and settings.mode is Mode.PRODUCTION:
        message = "QUOTAS_TEST_… is for tests: it needs QUOTAS_MODE=development."
        raise SettingsError(message)
    try:
        points = Failpoints.read(settings.test_failpoint)
    except ValueError as error:
        message = f"QUOTAS_TEST_FAILPOINT: {error}"
        raise SettingsError(message) from None
    owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"
    return LifeSettings(owner, points, settings.test_final_after_s, settings.drift_interval_s)
