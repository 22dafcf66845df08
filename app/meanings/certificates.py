"""Whose certificates are accepted, and this server's own."""

import ssl
from pathlib import Path

from cryptography import x509

from app.http.authentication.client_certificates import ClientCertificates
from app.http.authentication.principal_mapping import PrincipalMapping
from app.settings import Settings, SettingsError


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return what speaks TLS with callers, or null where nothing does.

    A client certificate is asked for where one could be a credential, and is not demanded, so that
    other credentials are good on the same port. TLS 1.2 is the oldest that is spoken.

    Raises:
        SettingsError: The values do not fit together, or a file cannot be used.
    """
    if settings.tls_cert_file is None:
        _refuse_what_needs_a_certificate(settings)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, _no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"QUOTAS_TLS_CERT_FILE, QUOTAS_TLS_KEY_FILE: they cannot be used: {reason}."
        raise SettingsError(message) from None
    if settings.tls_client_ca_file is not None:
        _accept_clients_of(context, settings.tls_client_ca_file)
    return context


def client_certificates(settings: Settings) -> ClientCertificates:
    """Return what judges certificates that this listener was shown; TLS has judged their issuers.

    Raises:
        SettingsError: The mapping rules cannot be used.
    """
    return ClientCertificates(principal_mapping(settings))


def proxied_certificates(settings: Settings) -> ClientCertificates:
    """Return what judges certificates that a trusted proxy was shown.

    Raises:
        SettingsError: The mapping rules or the file of issuers cannot be used.
    """
    mapping = principal_mapping(settings)
    path = settings.client_cert_issuers_file
    if path is None:
        return ClientCertificates(mapping)
    try:
        issuers = x509.load_pem_x509_certificates(path.read_bytes())
        no_authority = [one for one in issuers if not _is_authority(one)]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"QUOTAS_CLIENT_CERT_ISSUERS_FILE: it cannot be used: {reason}."
        raise SettingsError(message) from None
    if no_authority:
        subject = no_authority[0].subject.rfc4514_string()
        message = f"QUOTAS_CLIENT_CERT_ISSUERS_FILE: {subject} may not sign certificates."
        raise SettingsError(message)
    return ClientCertificates(mapping, issuers)


def principal_mapping(settings: Settings) -> PrincipalMapping:
    """Return the rules from subjects to users.

    Raises:
        SettingsError: They cannot be used.
    """
    try:
        return PrincipalMapping(settings.ssl_principal_mapping_rules)
    except ValueError as error:
        message = f"QUOTAS_SSL_PRINCIPAL_MAPPING_RULES: {error}."
        raise SettingsError(message) from None


def _refuse_what_needs_a_certificate(settings: Settings) -> None:
    for name in ("tls_key_file", "tls_port", "tls_client_ca_file"):
        if getattr(settings, name) is not None:
            message = f"QUOTAS_TLS_CERT_FILE is needed with QUOTAS_{name.upper()} and not set."
            raise SettingsError(message)


def _accept_clients_of(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        message = f"QUOTAS_TLS_CLIENT_CA_FILE: it cannot be used: {error.strerror or error}."
        raise SettingsError(message) from None
    context.verify_mode = ssl.CERT_OPTIONAL


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def _no_password() -> str:
    """Stand for the password of a key, which nobody is there to type."""
    message = "the key has a password"
    raise ValueError(message)
