"""Whether callers may log in at the brokers, and how."""

import logging

from app.kafka.configuration import KafkaSettings, SaslMechanism, ssl_context
from app.kafka.pass_through import PassThrough
from app.meanings.production import is_this_machine
from app.settings import Mode, Settings, SettingsError

logger = logging.getLogger(__name__)


def pass_through(settings: Settings) -> PassThrough | None:
    """Return how callers are logged in, or null where ``Authorization: Basic`` is not accepted.

    Raises:
        SettingsError: The values do not fit together, a file cannot be read, or passwords would
            leave this machine unencrypted in production.
    """
    if settings.basic_sasl_mechanism is None:
        return None
    files = (settings.kafka_ssl_ca_file, settings.kafka_ssl_cert_file, settings.kafka_ssl_key_file)
    way = PassThrough(
        settings.basic_bootstrap_servers or settings.kafka_bootstrap_servers,
        settings.basic_security_protocol,
        settings.basic_sasl_mechanism,
        *(None if path is None else str(path) for path in files),
    )
    try:
        kafka = way.settings("user", "password")
        ssl_context(kafka)
    except ValueError as error:
        message = f"QUOTAS_BASIC_…: {error}"
        raise SettingsError(message) from None
    except OSError as error:
        message = f"QUOTAS_KAFKA_SSL_…: A file cannot be used: {error.strerror or error}."
        raise SettingsError(message) from None
    if not kafka.protocol.uses_sasl:
        message = "QUOTAS_BASIC_SECURITY_PROTOCOL: it takes SASL_SSL or SASL_PLAINTEXT."
        raise SettingsError(message)
    _judge_secrecy(settings, kafka)
    return way


def _judge_secrecy(settings: Settings, kafka: KafkaSettings) -> None:
    if kafka.protocol.uses_tls or all(is_this_machine(host) for host, _ in kafka.addresses):
        return
    shown = "passwords" if settings.basic_sasl_mechanism == SaslMechanism.PLAIN else "logins"
    if settings.mode is Mode.PRODUCTION:
        message = (
            f"QUOTAS_BASIC_SECURITY_PROTOCOL: SASL_PLAINTEXT sends the callers' {shown} to the "
            "brokers unencrypted over a network, which needs QUOTAS_MODE=development; use "
            "SASL_SSL."
        )
        raise SettingsError(message)
    logger.warning("the callers' %s go to the brokers unencrypted", shown)
